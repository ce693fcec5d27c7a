#include <coxswain/servers/host/memory/memory_file.hpp>

#include <coxswain/runtime/kept/kept_error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace cox::detail {
namespace {

[[noreturn]] void fail(const std::string& what, int error, std::source_location site) {
  const bool descriptors = error == EMFILE || error == ENFILE;
  throw KeptError(descriptors ? KeptError::Kind::Descriptors : KeptError::Kind::Memory,
                  what + ": " + std::generic_category().message(error), site);
}

}  // namespace

MemoryFile::MemoryFile(FileDescriptor file, std::size_t bytes, std::source_location site)
    : file_(std::move(file)), bytes_(bytes) {
  address_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (address_ == MAP_FAILED) fail("kept memory of " + std::to_string(bytes_) + " bytes cannot be mapped", errno, site);
}

std::size_t MemoryFile::bytes_for(std::size_t bytes) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
}

MemoryFile::~MemoryFile() { munmap(address_, bytes_); }

std::shared_ptr<MemoryFile> MemoryFile::create(std::size_t bytes, std::source_location site) {
  const std::size_t size = bytes_for(bytes);
  FileDescriptor file(memfd_create("coxswain kept memory", MFD_CLOEXEC));
  if (!file.is_open()) fail("kept memory cannot be created", errno, site);
  // The pages are taken now: later a lack of them would be a signal at the first access.
  if (const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(size)); error != 0)
    fail("kept memory of " + std::to_string(bytes) + " bytes cannot be created", error, site);
  return std::shared_ptr<MemoryFile>(new MemoryFile(std::move(file), size, site));
}

std::shared_ptr<MemoryFile> MemoryFile::adopt(const KeptPieceSource& source, std::source_location site) {
  KeptPieces pieces = source();
  if (pieces.sizes.size() != 1 || !pieces.are_last)
    throw KeptError(KeptError::Kind::Memory, "kept memory of a host device has one piece, not more", site);
  const std::size_t size = pieces.sizes.front();
  struct stat status{};
  if (fstat(pieces.descriptors.front().get(), &status) != 0 || static_cast<std::size_t>(status.st_size) != size)
    throw KeptError(KeptError::Kind::Memory, "a descriptor of kept memory is not that of its memory", site);
  std::shared_ptr<MemoryFile> memory(new MemoryFile(std::move(pieces.descriptors.front()), size, site));
  memory->file_.reset();  // the supervisor has it
  return memory;
}

KeptPieces MemoryFile::next_pieces(std::source_location) {
  KeptPieces pieces;
  if (!file_.is_open()) return pieces;
  pieces.sizes.push_back(bytes_);
  pieces.descriptors.push_back(std::move(file_));
  return pieces;
}

}  // namespace cox::detail
