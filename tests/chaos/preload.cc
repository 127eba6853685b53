// Preloaded into a server by tests/chaos/chaos.py. It trims the heap when it is asked to, so that the memory in use can
// be read at once. The server has the leak that SVDSERVE_TEST_LEAK names, if any.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" void __libc_free(void* block);

namespace {

std::atomic<unsigned> frees, accepts;

// The first letter of the leak's name; '-': there is none.
char leak() {
  static std::atomic<char> kind;
  char now = kind;
  if (now == 0) {
    const char* const name = std::getenv("SVDSERVE_TEST_LEAK");
    kind = now = name == nullptr || *name == '\0' ? '-' : *name;
  }
  return now;
}

void* sleep_for_ever(void*) {
  for (;;) pause();
}

// Writes how many bytes are allocated, by malloc's own books.
void tell_memory_in_use(const char* path) {
  const struct mallinfo2 books = mallinfo2();
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return;
  std::fprintf(file, "%zu", books.uordblks + books.hblkhd);
  std::fclose(file);
}

// Trims the heap whenever the file is there, tells what is in use, and removes the file.
void* trim_when_asked(void* path) {
  const auto* const file = static_cast<const char*>(path);
  for (;;) {
    if (access(file, F_OK) == 0) {
      malloc_trim(0);
      tell_memory_in_use((std::string(file) + ".bytes").c_str());
      unlink(file);
    }
    usleep(50000);
  }
}

void begin(void* (*function)(void*), void* argument) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, function, argument) == 0) pthread_detach(thread);
}

__attribute__((constructor)) void start() {
  if (char* const path = std::getenv("SVDSERVE_TEST_TRIM")) begin(trim_when_asked, path);
}

}  // namespace

// memory: one of 400 blocks of some size is never freed.
extern "C" void free(void* block) noexcept {
  if (block != nullptr && leak() == 'm' && malloc_usable_size(block) >= 2048 && ++frees % 400 == 0) return;
  __libc_free(block);
}

// descriptors: one connection of four leaves a second descriptor. threads: it leaves a thread that never ends.
extern "C" int accept4(int socket, struct sockaddr* address, socklen_t* length, int flags) {
  using Accept = int (*)(int, struct sockaddr*, socklen_t*, int);
  static const auto next = reinterpret_cast<Accept>(dlsym(RTLD_NEXT, "accept4"));
  const int accepted = next(socket, address, length, flags);
  if (accepted < 0 || ++accepts % 4 != 0) return accepted;
  if (leak() == 'd' && dup(accepted) < 0) return accepted;
  if (leak() == 't') begin(sleep_for_ever, nullptr);
  return accepted;
}
