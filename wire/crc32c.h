// CRC-32C (Castagnoli; RFC 3720, appendix B.4): what guards the chunks of DecomposeLarge on both ends of the wire.
#ifndef SVDSERVE_WIRE_CRC32C_H_
#define SVDSERVE_WIRE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace svdserve {

// The checksum of a run of bytes whose first part has checksum `before` (0: there is none before) and whose rest is
// data[0, bytes). By the processor's instruction where it has one. Thread-safe.
uint32_t crc32c(uint32_t before, const void* data, size_t bytes);

// The same by tables alone, 8 bytes a step: what a processor without the instruction does.
uint32_t crc32c_by_tables(uint32_t before, const void* data, size_t bytes);

// Whether crc32c() uses the processor's instruction here.
bool crc32c_has_instruction();

}  // namespace svdserve
#endif  // SVDSERVE_WIRE_CRC32C_H_
