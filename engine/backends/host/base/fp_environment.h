// The floating-point environment that the kernels count on, for the life of an object: round to nearest, no flushing of
// denormals, no traps. The environment before it comes back afterwards.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_FP_ENVIRONMENT_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_FP_ENVIRONMENT_H_

#include <cfenv>

namespace svdserve::host {

class FpEnvironment {
 public:
  FpEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FpEnvironment() { std::fesetenv(&saved_); }
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_FP_ENVIRONMENT_H_
