#include <coxswain/servers/cuda/compile/compile.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/compile/compilation_report.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/nvrtc.hpp>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string_view>

namespace cox::detail {
namespace {

constexpr const char* file_name = "kernel.cu";  // the name of every source in logs and profilers

bool any_begins(const std::vector<std::string>& options, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(options, [&](const std::string& option) {
    return std::ranges::any_of(beginnings, [&](std::string_view beginning) { return option.starts_with(beginning); });
  });
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> result;
  result.reserve(texts.size());
  for (const std::string& text : texts) result.push_back(text.c_str());
  return result;
}

/// Owns an nvrtcProgram.
class Program {
 public:
  Program(const Nvrtc& nvrtc, const KernelSource& source) : nvrtc_(nvrtc), source_(source) {
    std::vector<const char*> names;
    std::vector<const char*> contents;
    for (const CudaHeader& header : source.headers) {
      names.push_back(header.name.c_str());
      contents.push_back(header.content.c_str());
    }
    require(nvrtc.create_program(&program_, source.text.c_str(), file_name, static_cast<int>(names.size()),
                                 contents.data(), names.data()),
            "nvrtcCreateProgram");
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { nvrtc_.destroy_program(&program_); }

  CompiledKernel compile(const std::vector<std::string>& options) {
    if (!source_.name_expression.empty())
      require(nvrtc_.add_name_expression(program_, source_.name_expression.c_str()), "nvrtcAddNameExpression");
    const nvrtcResult result =
        nvrtc_.compile_program(program_, static_cast<int>(options.size()), pointers(options).data());
    const std::string log = this->log();
    if (result != NVRTC_SUCCESS) fail(result, log);
    if (!log.empty()) log::write(LogSubsystem::Cuda, LogLevel::Info, [&] { return "NVRTC log: " + log; });
    return {image(), lowered_name()};
  }

 private:
  [[noreturn]] void fail(nvrtcResult result, const std::string& log) const {
    const std::string native = nvrtc_.error_text(result);
    throw LaunchError(
        LaunchError::Kind::Compilation, compilation_report(log.empty() ? native : log, source_.text, file_name),
        std::source_location::current(), std::make_exception_ptr(CudaError(CudaError::Kind::Generic, result, native)));
  }
  void require(nvrtcResult result, const char* call) const {
    if (result != NVRTC_SUCCESS) fail(result, std::string(call) + ": " + nvrtc_.error_text(result));
  }
  /// Also empty if the log cannot be read.
  [[nodiscard]] std::string log() const {
    std::size_t size = 0;
    if (nvrtc_.log_size(program_, &size) != NVRTC_SUCCESS || size <= 1) return {};
    std::string text(size, '\0');
    if (nvrtc_.log(program_, text.data()) != NVRTC_SUCCESS) return {};
    text.resize(std::min(text.find('\0'), size));
    return text;
  }
  [[nodiscard]] std::vector<std::byte> image() const {
    std::size_t size = 0;
    require(nvrtc_.cubin_size(program_, &size), "nvrtcGetCUBINSize");
    const bool is_cubin = size != 0;
    if (!is_cubin) require(nvrtc_.ptx_size(program_, &size), "nvrtcGetPTXSize");
    std::vector<std::byte> bytes(size);
    const auto get = is_cubin ? nvrtc_.cubin : nvrtc_.ptx;
    require(get(program_, reinterpret_cast<char*>(bytes.data())), is_cubin ? "nvrtcGetCUBIN" : "nvrtcGetPTX");
    return bytes;
  }
  [[nodiscard]] std::string lowered_name() const {
    if (source_.name_expression.empty()) return {};
    const char* name = nullptr;
    require(nvrtc_.lowered_name(program_, source_.name_expression.c_str(), &name), "nvrtcGetLoweredName");
    return name;
  }

  const Nvrtc& nvrtc_;
  const KernelSource& source_;
  nvrtcProgram program_ = nullptr;
};

}  // namespace

std::string architecture_name(int major, int minor) {
  return "sm_" + std::to_string(major) + std::to_string(minor) + (major >= 9 ? "a" : "");
}

std::vector<std::string> options_of_kernel(const Nvrtc& nvrtc, const std::vector<std::string>& options,
                                           const std::string& architecture) {
  std::vector<std::string> all;
  if (!any_begins(options, {"--gpu-architecture", "-arch"})) all.push_back("--gpu-architecture=" + architecture);
  if (!any_begins(options, {"--std", "-std"})) all.emplace_back("--std=c++20");
  if (!any_begins(options, {"--generate-line-info", "-lineinfo", "--device-debug", "-G"}))
    all.emplace_back("--generate-line-info");
  if (!any_begins(options, {"--device-as-default-execution-space", "-default-device"}))
    all.emplace_back("--device-as-default-execution-space");
  // Otherwise a file in the working directory could be included, which the KernelKey does not cover.
  if (nvrtc.version >= 12040) all.emplace_back("--no-source-include");
  all.insert(all.end(), options.begin(), options.end());
  return all;
}

std::vector<std::string> all_options(const Nvrtc& nvrtc, const std::vector<std::string>& options,
                                     const std::string& architecture) {
  std::vector<std::string> all = options_of_kernel(nvrtc, options, architecture);
  for (const std::filesystem::path& folder : nvrtc.includes) all.push_back("--include-path=" + folder.string());
  return all;
}

bool is_self_contained(const std::vector<std::string>& options) {
  return !any_begins(options, {"-I", "--include-path", "-include", "--pre-include", "-pch", "--pch", "--use-pch",
                               "-use-pch", "--create-pch", "-create-pch"});
}

CompiledKernel compile(const Nvrtc& nvrtc, const KernelSource& source, const std::string& architecture) {
  return Program(nvrtc, source).compile(all_options(nvrtc, source.options, architecture));
}

}  // namespace cox::detail
