// Stands in for NVRTC, for kernels that are functions: whatever the source, the image is one that nobody looks into.
#include <nvrtc.h>

#include <atomic>
#include <cstring>
#include <string_view>

namespace {

constexpr std::string_view image = ".version 8.0";
std::atomic<int> compilations{0};  // how often a program was compiled; a test finds the number with dlsym

}  // namespace

struct _nvrtcProgram {};  // NOLINT(bugprone-reserved-identifier): NVRTC's name

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult) { return "an error of the stand-in"; }
// Of no NVRTC: what is compiled here is nobody else's.
nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 99;
  *minor = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int, const char* const*,
                               const char* const*) {
  *program = new _nvrtcProgram;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) {
  ++compilations;
  return NVRTC_SUCCESS;
}
int cox_fake_nvrtc_compilations() { return compilations; }
nvrtcResult nvrtcAddNameExpression(nvrtcProgram, const char*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char* expression, const char** name) {
  *name = expression;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, std::size_t* size) {
  *size = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, std::size_t* size) {
  *size = image.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* to) {
  std::memcpy(to, image.data(), image.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, std::size_t* size) { return nvrtcGetCUBINSize(program, size); }
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* to) { return nvrtcGetCUBIN(program, to); }

}  // extern "C"
