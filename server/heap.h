// What the server asks of malloc.
#ifndef SVDSERVE_SERVER_HEAP_H_
#define SVDSERVE_SERVER_HEAP_H_

namespace svdserve::server {

// Blocks where glibc would map and fault in every megabyte afresh stay in the heap: large messages cost a third. To be
// called once, before there are threads.
void KeepHeapWarm();

// Gives the system back what the heap keeps free: tens of megabytes after a large upload, which nobody needs while its
// factor is computed. Takes a few milliseconds, in which others may wait for the heap. Thread-safe.
void TrimHeap();

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_HEAP_H_
