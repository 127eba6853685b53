#include "server/rpc/codec/message_builder.h"

#include <utility>

#include "wire/fields.h"

namespace svdserve::server {
namespace {

// Up to this size bytes are copied beside the other fields: a slice of their own costs the transport more.
constexpr size_t kCopied = 512;

}  // namespace

void MessageBuilder::flush_tail() {
  if (tail_.empty()) return;
  slices_bytes_ += tail_.size();
  slices_.emplace_back(tail_);
  tail_.clear();
}

void MessageBuilder::share(grpc::Slice slice) {
  flush_tail();
  slices_bytes_ += slice.size();
  slices_.push_back(std::move(slice));
}

void MessageBuilder::append_slice(int field, const grpc::Slice& slice, size_t begin, size_t end) {
  wire::append_head(&tail_, field, end - begin);
  if (end - begin <= kCopied) {
    tail_.append(reinterpret_cast<const char*>(slice.begin()) + begin, end - begin);
  } else {
    share(slice.sub(begin, end));
  }
}

void MessageBuilder::append_message(int field, MessageBuilder message) {
  wire::append_head(&tail_, field, message.size());
  for (grpc::Slice& slice : message.slices_) share(std::move(slice));
  tail_.append(message.tail_);
}

grpc::ByteBuffer MessageBuilder::build() {
  flush_tail();
  return grpc::ByteBuffer(slices_.data(), slices_.size());
}

}  // namespace svdserve::server
