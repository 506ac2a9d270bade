// The one thing that needs C++: tch does not tell the buffers of a TorchScript module.

#include <exception>
#include <string>

#include <torch/script.h>

using each_tensor = void (*)(void *context, const char *name, at::Tensor *tensor);
using on_failure = void (*)(void *context, const char *what);

// Calls `each` with every parameter, then every buffer, of the module in the file `path`; the tensor
// is the callee's. Or calls `failed`, once, with what went wrong; then no exception leaves.
extern "C" void onnx_container_script_tensors(const char *path, void *context, each_tensor each,
                                              on_failure failed) {
    try {
        const torch::jit::Module module = torch::jit::load(path, at::kCPU);
        for (const auto &parameter : module.named_parameters()) {
            each(context, parameter.name.c_str(), new at::Tensor(parameter.value));
        }
        for (const auto &buffer : module.named_buffers()) {
            each(context, buffer.name.c_str(), new at::Tensor(buffer.value));
        }
    } catch (const c10::Error &error) {
        failed(context, error.what_without_backtrace());
    } catch (const std::exception &error) {
        failed(context, error.what());
    } catch (...) {
        failed(context, "unknown exception");
    }
}
