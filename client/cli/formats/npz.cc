#include "client/cli/formats/npz.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/formats/dense.h"
#include "client/cli/formats/lines.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;
using Bytes = std::span<const std::byte>;

Status malformed(const std::string& why) {
  return {.code = client::Code::kInvalidArgument, .message = "not a readable .npz file: " + why};
}

// Little-endian numbers of a part of the file; 0 beyond its end.
uint64_t number(Bytes bytes, uint64_t at, uint64_t size) {
  if (at > bytes.size() || size > bytes.size() - at) return 0;
  uint64_t n = 0;
  for (uint64_t i = size; i-- > 0;) n = n << 8 | std::to_integer<uint64_t>(bytes[at + i]);
  return n;
}

// Records of the zip format (PKWARE's APPNOTE 4.3).
constexpr uint64_t kEnd = 0x06054b50, kEndBytes = 22;
constexpr uint64_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kLocator64Bytes = 20;
constexpr uint64_t kEntry = 0x02014b50, kEntryBytes = 46;
constexpr uint64_t kLocal = 0x04034b50, kLocalBytes = 30;
constexpr uint64_t kStored = 0, kDeflated = 8;
constexpr uint64_t kIn64 = 0xffffffff;  // a size or an offset that stands in the extra field

struct Member {
  std::string name = {};
  uint64_t flags = 0, method = 0, crc = 0, packed = 0, size = 0, offset = 0;
};

// Where the directory is, and how many entries it has.
struct Directory {
  uint64_t offset = 0, entries = 0;
};
std::optional<Directory> find_directory(Bytes file) {
  if (file.size() < kEndBytes) return std::nullopt;
  const uint64_t last = file.size() - kEndBytes, longest_comment = 0xffff;
  for (uint64_t at = last;; --at) {
    if (number(file, at, 4) == kEnd) {
      Directory d{number(file, at + 16, 4), number(file, at + 10, 2)};
      if (at >= kLocator64Bytes && number(file, at - kLocator64Bytes, 4) == kLocator64) {
        const uint64_t end64 = number(file, at - kLocator64Bytes + 8, 8);
        if (number(file, end64, 4) == kEnd64) d = {number(file, end64 + 48, 8), number(file, end64 + 32, 8)};
      }
      return d;
    }
    if (at == 0 || last - at == longest_comment) return std::nullopt;
  }
}

// Sizes and offset of 64 bits, in the order of those that the entry itself leaves open.
void read_extra(Bytes extra, Member* to) {
  for (uint64_t at = 0; at + 4 <= extra.size(); at += 4 + number(extra, at + 2, 2)) {
    if (number(extra, at, 2) != 1) continue;
    uint64_t value = at + 4;
    for (uint64_t* field : {&to->size, &to->packed, &to->offset}) {
      if (*field != kIn64) continue;
      *field = number(extra, value, 8);
      value += 8;
    }
    return;
  }
}

Result<std::vector<Member>> read_directory(Bytes file) {
  const auto directory = find_directory(file);
  if (!directory) return malformed("it has no directory at its end");
  std::vector<Member> members;
  uint64_t at = directory->offset;
  for (uint64_t i = 0; i < directory->entries; ++i) {
    const uint64_t name = number(file, at + 28, 2), extra = number(file, at + 30, 2),
                   comment = number(file, at + 32, 2);
    if (number(file, at, 4) != kEntry || at + kEntryBytes + name + extra > file.size()) {
      return malformed("its directory is broken");
    }
    Member m{.flags = number(file, at + 8, 2),
             .method = number(file, at + 10, 2),
             .crc = number(file, at + 16, 4),
             .packed = number(file, at + 20, 4),
             .size = number(file, at + 24, 4),
             .offset = number(file, at + 42, 4)};
    m.name.assign(reinterpret_cast<const char*>(file.data()) + at + kEntryBytes, name);
    if (m.name.ends_with(".npy")) m.name.resize(m.name.size() - 4);
    read_extra(file.subspan(at + kEntryBytes + name, extra), &m);
    members.push_back(std::move(m));
    at += kEntryBytes + name + extra + comment;
  }
  return members;
}

// The bytes of the member as they lie in the file.
std::optional<Bytes> packed_bytes(Bytes file, const Member& m) {
  if (number(file, m.offset, 4) != kLocal) return std::nullopt;
  const uint64_t begin = m.offset + kLocalBytes + number(file, m.offset + 26, 2) + number(file, m.offset + 28, 2);
  if (begin > file.size() || m.packed > file.size() - begin) return std::nullopt;
  return file.subspan(begin, m.packed);
}

// zlib counts in 32 bits: feeds it parts.
constexpr uint64_t kPart = 1 << 30;

uint64_t crc_of(Bytes bytes) {
  uLong crc = crc32(0, nullptr, 0);
  for (uint64_t at = 0; at < bytes.size(); at += kPart) {
    const Bytes part = bytes.subspan(at, std::min<uint64_t>(kPart, bytes.size() - at));
    crc = crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
  }
  return crc;
}

// Whether the packed bytes fill `out` exactly.
bool inflate_into(Bytes packed, std::span<std::byte> out) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;  // without zlib's own head
  uint64_t read = 0, written = 0;
  int code = Z_OK;
  while (code == Z_OK) {
    const auto in = static_cast<uInt>(std::min<uint64_t>(kPart, packed.size() - read));
    const auto room = static_cast<uInt>(std::min<uint64_t>(kPart, out.size() - written));
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data() + read));
    stream.avail_in = in;
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    stream.avail_out = room;
    code = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in;
    written += room - stream.avail_out;
    if (code == Z_OK && in == stream.avail_in && room == stream.avail_out) break;  // neither goes on
  }
  inflateEnd(&stream);
  return code == Z_STREAM_END && written == out.size();
}

Result<NpyArray> read_member(FileBytes file, const Member& m) {
  if ((m.flags & 1) != 0) return malformed("its member " + m.name + " is encrypted");
  if (m.method != kStored && m.method != kDeflated) {
    return malformed("its member " + m.name + " is compressed by another method than deflate");
  }
  const auto packed = packed_bytes(file.bytes, m);
  if (!packed) return malformed("its member " + m.name + " lies beyond its end");
  FileBytes member{*packed, std::move(file.owner)};
  if (m.method == kDeflated) {
    if (m.size > memory_bytes()) return malformed("its member " + m.name + " is larger than this machine's memory");
    const auto memory = std::make_shared_for_overwrite<std::byte[]>(std::max<size_t>(m.size, 1));
    const std::span<std::byte> out(memory.get(), m.size);
    if (!inflate_into(*packed, out)) return malformed("its member " + m.name + " cannot be decompressed");
    member = {out, memory};
  }
  if (member.bytes.size() != m.size || crc_of(member.bytes) != m.crc) {
    return malformed("its member " + m.name + " has another checksum than its directory");
  }
  return to_array(member.bytes, std::move(member.owner));
}

std::string names(const std::vector<Member>& members) {
  return absl::StrJoin(members, ", ", [](std::string* out, const Member& m) { absl::StrAppend(out, m.name); });
}

}  // namespace

Result<NpyArray> read_npz(FileBytes file, const std::string& name) {
  const auto members = read_directory(file.bytes);
  if (!members.ok()) return members.status();
  if (members->empty()) return malformed("it has no arrays");
  if (name.empty() && members->size() > 1) {
    return Status{.code = client::Code::kInvalidArgument,
                  .message = absl::StrCat("has several arrays; name one of ", names(*members),
                                          ", such as FILE.npz:", members->front().name)};
  }
  const auto member = std::ranges::find_if(*members, [&](const Member& m) { return name.empty() || m.name == name; });
  if (member == members->end()) {
    return Status{.code = client::Code::kInvalidArgument,
                  .message = absl::StrCat("has no array ", in_quotes(name), "; it has ", names(*members))};
  }
  return read_member(std::move(file), *member);
}

}  // namespace svdserve::cli
