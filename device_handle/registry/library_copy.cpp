#include <coxswain/device_handle/registry/library_copy.hpp>

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

extern "C" {
// 1: this copy has opened devices. Read and written under the lock of the dynamic linker, which all copies share.
[[gnu::used, gnu::visibility("hidden")]] std::uint32_t cox_library_copy_in_use = 0;
}

// The ELF note. Its content is the distance from the content to the flag.
asm(R"(
  .pushsection .note.coxswain,"a",%note
  .balign 4
  .long 9
  .long 4
  .long 1
  .asciz "coxswain"
  .balign 4
  .long cox_library_copy_in_use - .
  .popsection
)");

namespace cox::detail {
namespace {

constexpr std::string_view note_name("coxswain\0", 9);
constexpr std::uint32_t note_type = 1;

struct Search {
  const char* other = nullptr;  // the file of another copy that is in use
};

std::size_t aligned(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }

// The flag of the library copy in that object; null if there is none.
std::uint32_t* flag_in(const dl_phdr_info& object) {
  for (std::size_t i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const std::size_t alignment = segment.p_align == 8 ? 8 : 4;
    const auto* at = reinterpret_cast<const char*>(object.dlpi_addr + segment.p_vaddr);
    std::size_t left = segment.p_memsz;
    ElfW(Nhdr) note{};
    while (left >= sizeof note) {
      std::memcpy(&note, at, sizeof note);
      const std::size_t content = aligned(sizeof note + note.n_namesz, alignment);
      const std::size_t size = aligned(content + note.n_descsz, alignment);
      if (content + note.n_descsz > left) break;
      if (note.n_type == note_type && std::string_view(at + sizeof note, note.n_namesz) == note_name) {
        std::int32_t distance = 0;
        std::memcpy(&distance, at + content, sizeof distance);
        return reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::uintptr_t>(at + content) +
                                                static_cast<std::uintptr_t>(static_cast<std::intptr_t>(distance)));
      }
      if (size >= left) break;
      at += size;
      left -= size;
    }
  }
  return nullptr;
}

int visit(dl_phdr_info* object, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const std::uint32_t* const flag = flag_in(*object);
  if (flag == nullptr || flag == &cox_library_copy_in_use || *flag == 0) return 0;
  search.other = object->dlpi_name;
  return 1;
}

// Runs under the same linker lock as the search, so the copies search and mark one after the other.
int search_and_mark(dl_phdr_info*, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  dl_iterate_phdr(visit, &search);  // the lock is recursive
  if (search.other == nullptr) cox_library_copy_in_use = 1;
  return 1;
}

}  // namespace

std::string other_copy_in_use() {
  Search search;
  dl_iterate_phdr(search_and_mark, &search);
  if (search.other == nullptr) return "";
  return *search.other == '\0' ? "the program" : search.other;
}

}  // namespace cox::detail
