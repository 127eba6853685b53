// The build of a program or shared library that is loaded: its contents, whatever its version says.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_STATES_BUILD_ID_H_
#define SVDSERVE_ENGINE_ALGORITHMS_STATES_BUILD_ID_H_

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace svdserve::states {

// The digits of the build ID (ELF's NT_GNU_BUILD_ID) of what has `address` in it; empty: it has none.
inline std::string build_id_of(const void* address) {
  struct Search {
    uintptr_t address;
    std::string id;

    void look_in(const char* note, const char* end) {
      const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
      for (ElfW(Nhdr) header; note + sizeof header <= end;) {
        std::memcpy(&header, note, sizeof header);
        const char* const owner = note + sizeof header;
        const char* const bytes = owner + padded(header.n_namesz);
        note = bytes + padded(header.n_descsz);
        if (header.n_type != NT_GNU_BUILD_ID || header.n_namesz != 4 || std::memcmp(owner, "GNU", 4) != 0) continue;
        for (size_t i = 0; i < header.n_descsz; ++i) {
          id += "0123456789abcdef"[static_cast<unsigned char>(bytes[i]) >> 4];
          id += "0123456789abcdef"[bytes[i] & 15];
        }
        return;
      }
    }
  } search{reinterpret_cast<uintptr_t>(address), {}};
  const auto look = [](dl_phdr_info* object, size_t /*size*/, void* data) {
    auto& s = *static_cast<Search*>(data);
    bool is_it = false;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& p = object->dlpi_phdr[i];
      is_it = is_it || (p.p_type == PT_LOAD && s.address - object->dlpi_addr - p.p_vaddr < p.p_memsz);
    }
    for (int i = 0; is_it && i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& p = object->dlpi_phdr[i];
      if (p.p_type != PT_NOTE || !s.id.empty()) continue;
      const auto* const note = reinterpret_cast<const char*>(object->dlpi_addr + p.p_vaddr);
      s.look_in(note, note + p.p_memsz);
    }
    return is_it ? 1 : 0;
  };
  dl_iterate_phdr(look, &search);
  return search.id;
}

}  // namespace svdserve::states
#endif  // SVDSERVE_ENGINE_ALGORITHMS_STATES_BUILD_ID_H_
