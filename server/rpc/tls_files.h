// The files of TLS: the server's certificate with its key, and the roots of the clients' certificates. They are read at
// start, and again while the server serves, so that they can be replaced without a restart.
#ifndef SVDSERVE_SERVER_RPC_TLS_FILES_H_
#define SVDSERVE_SERVER_RPC_TLS_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace svdserve::server {

struct TlsPaths {
  std::string certificate, key;
  std::string client_ca;  // empty: clients need no certificate
};

struct TlsTexts {
  std::string certificate, key, client_ca;  // PEM
  // When the server's own certificate begins to be valid, and when it ends.
  absl::Time own_begin = absl::InfinitePast(), own_expiry = absl::InfiniteFuture();
  // The first moment at which a certificate of the server's chain is not valid any more. For roots it is the last one:
  // from then on no client's certificate is valid. InfiniteFuture without roots.
  absl::Time certificate_expiry = absl::InfiniteFuture();
  absl::Time client_ca_expiry = absl::InfiniteFuture();

  bool same_files(const TlsTexts& other) const {
    return certificate == other.certificate && key == other.key && client_ca == other.client_ca;
  }
};

// Reads the files into *texts. Returns why not, with the flag that names the file, or nothing.
std::string read_tls_files(const TlsPaths& paths, TlsTexts* texts);
// Whether a server can use them: all are PEM, and certificate and key belong together. Sets the expiries. Returns what
// is wrong, or nothing.
std::string check_tls_texts(TlsTexts* texts);

// Thread-safe.
class TlsFiles {
 public:
  // `first` was checked.
  TlsFiles(TlsPaths paths, TlsTexts first)
      : paths_(std::move(paths)), current_(std::make_shared<TlsTexts>(std::move(first))) {}

  enum class Reload : uint8_t { kLoaded, kUnchanged, kRejected };
  // Reads the files anew. All stays as it was, and *why says so, where they cannot be used. Nor is an expired certificate
  // taken while the one in use is valid.
  Reload reload(absl::Time now, std::string* why);

  // The texts for new connections; another object after each reload that loaded.
  std::shared_ptr<const TlsTexts> current() const;

 private:
  const TlsPaths paths_;
  mutable Mutex mu_;
  std::shared_ptr<const TlsTexts> current_ ABSL_GUARDED_BY(mu_);
};

// A thread that reloads the files now and then, and whenever it is asked to. Thread-safe.
class TlsWatch {
 public:
  // Called on the watch's thread after each look that found something to tell: files that changed or are wrong.
  using OnReload = std::function<void(TlsFiles::Reload)>;

  // Looks every `period`; zero: only when asked. `files` outlives the watch.
  TlsWatch(TlsFiles* files, absl::Duration period, OnReload on_reload);
  ~TlsWatch();

  // Returns at once.
  void look_now();

 private:
  void run();
  void look(bool asked);

  TlsFiles* const files_;
  const absl::Duration period_;
  const OnReload on_reload_;
  Mutex mu_;
  CondVar changed_;
  bool asked_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::string last_rejection_;  // of the thread alone
  std::thread thread_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_TLS_FILES_H_
