#include "server/rpc/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/base/log.h"
#include "server/base/small_file.h"

namespace svdserve::server {
namespace {

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using X509Pointer = std::unique_ptr<X509, Free<X509_free>>;
using KeyPointer = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using BioPointer = std::unique_ptr<BIO, Free<BIO_free>>;
using ContextPointer = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;

BioPointer open_text(const std::string& text) {
  return BioPointer(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// OpenSSL asks at the terminal for the password of an encrypted key, unless it is given one.
char no_password[] = "";

// Every certificate of a PEM text. False where one of them cannot be parsed, or there is none.
bool parse_certificates(const std::string& pem, std::vector<X509Pointer>* out) {
  const BioPointer text = open_text(pem);
  ERR_clear_error();
  while (X509* const one = PEM_read_bio_X509(text.get(), nullptr, nullptr, no_password)) out->emplace_back(one);
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  return at_end && !out->empty();
}

absl::Time time_of(const ASN1_TIME* time, absl::Time otherwise) {
  std::tm broken_down{};
  if (ASN1_TIME_to_tm(time, &broken_down) != 1) return otherwise;
  return absl::FromTimeT(timegm(&broken_down));
}
absl::Time expiry_of(const X509* certificate) { return time_of(X509_get0_notAfter(certificate), absl::InfinitePast()); }

// As gRPC will do it, so that nothing it cannot use passes.
std::string check_pair(const std::vector<X509Pointer>& chain, EVP_PKEY* key) {
  const ContextPointer context(SSL_CTX_new(TLS_server_method()));
  ERR_clear_error();
  std::string wrong;
  if (SSL_CTX_use_certificate(context.get(), chain.front().get()) != 1) {
    wrong = "OpenSSL rejects the certificate, often because its key is too short";
  } else if (SSL_CTX_use_PrivateKey(context.get(), key) != 1 || SSL_CTX_check_private_key(context.get()) != 1) {
    wrong = "certificate and key do not belong together";
  }
  ERR_clear_error();
  return wrong;
}

}  // namespace

std::string read_tls_files(const TlsPaths& paths, TlsTexts* texts) {
  constexpr size_t kMostBytes = 1 << 20;
  const struct {
    const char* flag;
    const std::string& path;
    std::string* text;
  } files[] = {{"tls-cert", paths.certificate, &texts->certificate},
               {"tls-key", paths.key, &texts->key},
               {"tls-client-ca", paths.client_ca, &texts->client_ca}};
  for (const auto& file : files) {
    if (file.path.empty()) continue;
    const std::string wrong = read_small_file(file.path, kMostBytes, file.text);
    if (!wrong.empty()) return std::string("--") + file.flag + ": cannot read " + file.path + ": " + wrong;
  }
  return "";
}

std::string check_tls_texts(TlsTexts* texts) {
  std::vector<X509Pointer> chain, roots;
  if (!parse_certificates(texts->certificate, &chain)) return "--tls-cert cannot be parsed as PEM";
  const BioPointer key_text = open_text(texts->key);
  const KeyPointer key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, no_password));
  ERR_clear_error();
  if (key == nullptr) return "--tls-key cannot be parsed as PEM, or is encrypted";
  if (const std::string wrong = check_pair(chain, key.get()); !wrong.empty()) return "--tls-cert, --tls-key: " + wrong;
  texts->certificate_expiry = absl::InfiniteFuture();
  for (const X509Pointer& one : chain) {
    texts->certificate_expiry = std::min(texts->certificate_expiry, expiry_of(one.get()));
  }
  texts->own_begin = time_of(X509_get0_notBefore(chain.front().get()), absl::InfiniteFuture());
  texts->own_expiry = expiry_of(chain.front().get());
  texts->client_ca_expiry = absl::InfiniteFuture();
  if (texts->client_ca.empty()) return "";
  if (!parse_certificates(texts->client_ca, &roots)) return "--tls-client-ca cannot be parsed as PEM";
  texts->client_ca_expiry = absl::InfinitePast();
  for (const X509Pointer& one : roots) {
    texts->client_ca_expiry = std::max(texts->client_ca_expiry, expiry_of(one.get()));
  }
  return "";
}

TlsFiles::Reload TlsFiles::reload(absl::Time now, std::string* why) {
  why->clear();
  TlsTexts read;
  *why = read_tls_files(paths_, &read);
  const std::shared_ptr<const TlsTexts> in_use = current();
  if (why->empty() && read.same_files(*in_use)) return Reload::kUnchanged;
  if (why->empty()) *why = check_tls_texts(&read);
  if (why->empty() && in_use->own_expiry > now) {
    if (read.own_expiry <= now) *why = "--tls-cert has expired, and the certificate in use has not";
    if (read.own_begin > now) *why = "--tls-cert is not valid yet, and the certificate in use is";
  }
  if (!why->empty()) return Reload::kRejected;
  MutexLock lock(&mu_);
  current_ = std::make_shared<TlsTexts>(std::move(read));
  return Reload::kLoaded;
}

std::shared_ptr<const TlsTexts> TlsFiles::current() const {
  MutexLock lock(&mu_);
  return current_;
}

TlsWatch::TlsWatch(TlsFiles* files, absl::Duration period, OnReload on_reload)
    : files_(files), period_(period), on_reload_(std::move(on_reload)), thread_([this] { run(); }) {}

TlsWatch::~TlsWatch() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.signal();
  }
  thread_.join();
}

void TlsWatch::look_now() {
  MutexLock lock(&mu_);
  asked_ = true;
  changed_.signal();
}

void TlsWatch::run() {
  for (;;) {
    const auto next = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(period_);
    bool asked = false;
    {
      MutexLock lock(&mu_);
      while (!asked_ && !stopping_ && (period_ == absl::ZeroDuration() || std::chrono::steady_clock::now() < next)) {
        if (period_ == absl::ZeroDuration()) {
          changed_.wait(&mu_);
        } else {
          changed_.wait_until(&mu_, next);
        }
      }
      if (stopping_) return;
      asked = std::exchange(asked_, false);
    }
    look(asked);
  }
}

void TlsWatch::look(bool asked) {
  std::string why;
  const TlsFiles::Reload result = files_->reload(absl::Now(), &why);
  switch (result) {
    case TlsFiles::Reload::kLoaded: {
      const auto texts = files_->current();
      log_info("tls_files_loaded", {{"certificate_expires", absl::FormatTime(texts->certificate_expiry)},
                                    {"client_ca_expires", absl::FormatTime(texts->client_ca_expiry)}});
      break;
    }
    case TlsFiles::Reload::kRejected:
      if (asked || why != last_rejection_) log_error("tls_files_rejected", {{"reason", why}});
      break;
    case TlsFiles::Reload::kUnchanged:
      if (asked) log_info("tls_files_unchanged");
      break;
  }
  last_rejection_ = why;
  if (result != TlsFiles::Reload::kUnchanged) on_reload_(result);
}

}  // namespace svdserve::server
