//! Messages of more than 2^31 and of more than 2^32 bytes, read from and written as sparse files.
//!
//! Nothing here touches the gigabytes: what is written is compared with the file by its address.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use memmap2::Mmap;
use onnx_container::Buffer;
use onnx_container::proto::{Message, ModelProto, TensorProto};

fn record(tag: u8, len: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let mut left = len;
    while left >= 0x80 {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes.extend(rest);
    bytes
}

/// Maps a file that is `head`, `zeros` zeros and `tail`.
#[allow(unsafe_code)]
fn sparse(head: &[u8], zeros: u64, tail: &[u8]) -> Buffer {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(head).unwrap();
    file.seek(SeekFrom::Current(zeros as i64)).unwrap();
    file.write_all(tail).unwrap();
    // SAFETY: the file has no name, so nobody else changes it.
    Buffer::from_owner(unsafe { Mmap::map(&file) }.unwrap())
}

/// Takes what must be the bytes of `wanted`: large writes from the very place, small ones alike.
/// What lies between is left out of `copy`.
struct Compare {
    wanted: Buffer,
    at: usize,
    copy: File,
}

impl Write for Compare {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = &self.wanted[self.at..][..bytes.len()];
        if bytes.len() > 1 << 20 {
            assert_eq!(bytes.as_ptr(), wanted.as_ptr(), "a payload was copied");
            self.copy.seek(SeekFrom::Current(bytes.len() as i64))?;
        } else {
            assert_eq!(bytes, wanted);
            self.copy.write_all(bytes)?;
        }
        self.at += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Encodes a message that was decoded from `file`, and decodes what was written.
fn written_as_read<M: Message>(message: &M, file: &Buffer) {
    assert_eq!(message.encoded_len(), file.len() as u64);
    let copy = tempfile::tempfile().unwrap();
    let mut out = Compare { wanted: file.clone(), at: 0, copy };
    message.encode(&mut out).unwrap();
    assert_eq!(out.at, file.len());
    assert_eq!(out.copy.metadata().unwrap().len(), file.len() as u64);
}

#[test]
fn more_than_2_to_the_31() {
    let len = (1 << 31) + 1000;
    let file = sparse(&record(0x4a, len, &[]), len, b"\x62\x01A");
    let tensor = TensorProto::decode(&file).unwrap();
    assert_eq!(tensor.raw_data.as_ref().unwrap().len() as u64, len);
    assert_eq!(**tensor.doc_string.as_ref().unwrap(), "A");
    written_as_read(&tensor, &file);
}

#[test]
fn more_than_2_to_the_32() {
    let len = (1 << 32) + 5000;
    let raw = record(0x4a, len, &[]);
    let name = b"\x52\x01A";
    let tensor = record(0x2a, len + raw.len() as u64, &raw);
    let graph = record(0x3a, len + (tensor.len() + name.len()) as u64, &tensor);
    let file = sparse(&graph, len, &[&name[..], b"\x42\x02\x10\x15"].concat());
    assert!(file.len() as u64 > 1 << 32);
    let model = ModelProto::decode(&file).unwrap();
    assert_eq!(model.opset_import[0].version, Some(21));
    let graph = model.graph.as_ref().unwrap();
    assert_eq!(graph.initializer[0].raw_data.as_ref().unwrap().len() as u64, len);
    assert_eq!(**graph.doc_string.as_ref().unwrap(), "A");
    written_as_read(&model, &file);
}

#[test]
fn packed_numbers_of_more_than_2_to_the_32() {
    let len = (1 << 32) + 4096;
    let file = sparse(&record(0x22, len, &[]), len, b"\x42\x01A");
    let tensor = TensorProto::decode(&file).unwrap();
    assert_eq!(tensor.float_data.len() as u64, len / 4);
    written_as_read(&tensor, &file);
}
