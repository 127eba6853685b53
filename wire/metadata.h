// Metadata of the calls: names that both ends of the wire use.
#ifndef SVDSERVE_WIRE_METADATA_H_
#define SVDSERVE_WIRE_METADATA_H_

namespace svdserve {

// Initial metadata of Decompose: the length of the serialized request in bytes, as a decimal number; of a stream, that
// of its longest message. A client announces it so that the server can make room for a request before it reads it.
inline constexpr char kRequestBytesKey[] = "svdserve-request-bytes";

}  // namespace svdserve
#endif  // SVDSERVE_WIRE_METADATA_H_
