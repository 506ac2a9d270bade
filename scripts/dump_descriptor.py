"""Prints every field of onnx.proto, as in the installed onnx package, as tab-separated values.

    python scripts/dump_descriptor.py > tests/data/onnx_fields.tsv

Columns: message, field number, name, type, label, packed (1 or 0). An enum has its first and last value behind its type.
"""

import onnx
from google.protobuf.descriptor import FieldDescriptor as F

TYPES = {getattr(F, name): name[5:].lower() for name in dir(F) if name.startswith("TYPE_")}


def messages(found):
    for message in found:
        yield message
        yield from messages(message.nested_types)


def label(field):
    return "repeated" if field.is_repeated else "required" if field.is_required else "optional"


def enum(values):
    """The values of an enum, which has no gaps."""
    numbers = sorted(value.number for value in values)
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), numbers
    return f"enum {numbers[0]}..={numbers[-1]}"


def main():
    file = onnx.onnx_ml_pb2.DESCRIPTOR
    print(f"# onnx {onnx.__version__}: message, number, name, type, label, packed")
    found = messages(file.message_types_by_name.values())
    for message in sorted(found, key=lambda m: m.full_name):
        name = message.full_name.removeprefix("onnx.")
        for field in sorted(message.fields, key=lambda f: f.number):
            kind = TYPES[field.type]
            if field.message_type:
                kind = field.message_type.full_name.removeprefix("onnx.")
            if field.enum_type:
                kind = enum(field.enum_type.values)
            row = name, field.number, field.name, kind, label(field), int(field.is_packed)
            print(*row, sep="\t")


if __name__ == "__main__":
    main()
