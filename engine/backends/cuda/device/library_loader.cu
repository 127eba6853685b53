#include "engine/backends/cuda/device/library_loader.h"

#include <dlfcn.h>

#include <initializer_list>

namespace svdserve::cuda {
namespace {

// The first of `names` that opens, or null with what the linker said of the first.
void* open_first(std::initializer_list<const char*> names, std::string& refusal) {
  for (const char* const name : names) {
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      refusal.clear();
      return library;
    }
    const char* const text = dlerror();
    if (refusal.empty()) refusal = std::string("large matrices need it: ") + (text != nullptr ? text : name);
  }
  return nullptr;
}

template <class Function>
void find(void* library, const char* name, Function& function, std::string& refusal) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && refusal.empty())
    refusal = std::string("large matrices need ") + name + ", which is missing";
}

Libraries open() {
  Libraries all;
  void* const cublas = open_first({"libcublas.so.13", "libcublas.so.12"}, all.refusal);
  if (cublas == nullptr) return all;
  void* const cusolver = open_first({"libcusolver.so.12", "libcusolver.so.11"}, all.refusal);
  if (cusolver == nullptr) return all;
#define SVD_FIND(name) find(cublas, #name, all.name, all.refusal);
  SVD_CUBLAS_FUNCTIONS(SVD_FIND)
#undef SVD_FIND
#define SVD_FIND(name) find(cusolver, #name, all.name, all.refusal);
  SVD_CUSOLVER_FUNCTIONS(SVD_FIND)
#undef SVD_FIND
  std::string ignored;
#define SVD_FIND(name) find(cusolver, #name, all.name, ignored);
  SVD_GEEV_FUNCTIONS(SVD_FIND)
#undef SVD_FIND
  return all;
}

}  // namespace

const Libraries& libraries() {
  static const Libraries opened = open();
  return opened;
}

}  // namespace svdserve::cuda
