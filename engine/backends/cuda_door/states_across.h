// A LargeStateStore on both sides of the plugin's table.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_STATES_ACROSS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_STATES_ACROSS_H_

#include <cstdint>

#include "engine/backends/cuda_door/plugin_abi.h"
#include "engine/large_engine.h"

namespace svdserve::cuda {

// The engine's side. `store` may be null, and outlives what is made of it.
inline SvdserveCudaStates states_to_cross(LargeStateStore* store) {
  using Store = LargeStateStore*;
  return {
      store,
      [](void* s) -> int32_t { return static_cast<Store>(s)->due(); },
      [](void* s, LargeState state, uint64_t bytes) -> int32_t { return static_cast<Store>(s)->begin(state, bytes); },
      [](void* s, const void* bytes, uint64_t count) { static_cast<Store>(s)->write(bytes, count); },
      [](void* s) { static_cast<Store>(s)->end(); },
      [](void* s, LargeState state) { return static_cast<Store>(s)->open(state); },
      [](void* s, void* bytes, uint64_t count) -> int32_t { return static_cast<Store>(s)->read(bytes, count); }};
}

// The plugin's side: a store that is the engine's. The functions outlive it.
class StatesAcross final : public LargeStateStore {
 public:
  explicit StatesAcross(const SvdserveCudaStates& states) : states_(states) {}
  // Null: there are none.
  LargeStateStore* get() { return states_.store != nullptr ? this : nullptr; }

  bool due() override { return states_.due(states_.store) != 0; }
  bool begin(LargeState state, uint64_t bytes) override { return states_.begin(states_.store, state, bytes) != 0; }
  void write(const void* bytes, uint64_t count) override { states_.write(states_.store, bytes, count); }
  void end() override { states_.end(states_.store); }
  uint64_t open(LargeState state) override { return states_.open(states_.store, state); }
  bool read(void* bytes, uint64_t count) override { return states_.read(states_.store, bytes, count) != 0; }

 private:
  const SvdserveCudaStates& states_;
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_STATES_ACROSS_H_
