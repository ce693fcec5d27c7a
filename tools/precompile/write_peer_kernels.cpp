// Part of the build: writes the sources of peer kernels for nvcc, and the list of their images.
//   write_peer_kernels FOLDER NAME...    NAME: f32_sum_2 (type, operation, ranks) or copies_2
// FOLDER gets NAME.cu for each, and images.inc, which servers/cuda/peer/embedded_kernels.cpp includes. A file whose
// content would not change is not written, so that nothing is compiled again.
#include <coxswain/runtime/base/fnv1a.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

namespace fs = std::filesystem;

std::string source_of(const std::string& name) {
  const std::size_t end = name.rfind('_');
  const std::string code = name.substr(0, end);
  const std::size_t ranks = end == std::string::npos ? 0 : std::stoul(name.substr(end + 1));
  if (code == "copies") return cox::detail::peer_kernels_source({}, ranks);
  for (const auto& type : cox::element_types)
    for (std::size_t i = 0; i < cox::reduce_operation_names.size(); ++i)
      if (code == std::string(type.name) + "_" + std::string(cox::reduce_operation_names[i]))
        return cox::detail::peer_kernels_source(
            {.reduces = true, .type = type.type, .operation = static_cast<cox::ReduceOperation>(i)}, ranks);
  throw std::invalid_argument("no kernels are called " + name);
}

void write(const fs::path& file, const std::string& content) {
  std::ostringstream present;
  present << std::ifstream(file, std::ios::binary).rdbuf();
  if (fs::exists(file) && present.str() == content) return;
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << content;
  stream.close();
  if (!stream) throw std::runtime_error("cannot write " + file.string());
}

}  // namespace

int main(int count, char** arguments) try {
  const std::span<char*> words(arguments, static_cast<std::size_t>(count));
  if (words.size() < 2) throw std::invalid_argument("write_peer_kernels FOLDER NAME...");
  const fs::path folder = words[1];
  fs::create_directories(folder);
  std::ostringstream images;
  for (const std::string name : words.subspan(2)) {
    const std::string source = source_of(name);
    write(folder / (name + ".cu"), source);
    images << "COX_IMAGE(" << name << ", " << cox::detail::fnv1a(source) << "U, \""
           << (folder / (name + ".fatbin")).string() << "\")\n";
  }
  write(folder / "images.inc", images.str());
  return 0;
} catch (const std::exception& error) {
  std::cerr << "write_peer_kernels: " << error.what() << '\n';
  return 1;
}
