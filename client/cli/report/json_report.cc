#include "client/cli/report/json_report.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <span>

namespace svdserve::cli {
namespace {

const char* name_of(Values kind) {
  switch (kind) {
    case Values::kSingular:
      return "singular_values";
    case Values::kHyperbolic:
      return "hyperbolic_singular_values";
    case Values::kEigenvalues:
      return "eigenvalues";
    case Values::kComplex:
      return "complex_eigenvalues";
  }
  return "";
}

Json json_of(const Range& range) {
  if (range.empty()) return {};
  return Json::Object{{"min", range.least}, {"max", range.most}};
}

Json json_of(std::complex<double> x, bool is_complex) {
  return is_complex ? Json(Json::Array{x.real(), x.imag()}) : Json(x.real());
}

// Number i of a plane.
double number_at(const StackReport& r, size_t i) {
  if (client::value_bytes(r.stack.batch.data_type) == sizeof(float)) {
    float x = 0;
    std::memcpy(&x, r.values.data() + i * sizeof x, sizeof x);
    return static_cast<double>(x);
  }
  double x = 0;
  std::memcpy(&x, r.values.data() + i * sizeof x, sizeof x);
  return x;
}

// For each matrix an array.
Json all_values(const StackReport& r) {
  const bool is_complex = r.kind == Values::kComplex;
  Json::Array all;
  size_t at = 0;
  for (int64_t i = 0; i < r.stack.batch.count; ++i) {
    Json::Array one;
    for (int64_t j = 0; j < r.values_per_matrix; ++j, at += is_complex ? 2 : 1) {
      one.push_back(json_of({number_at(r, at), is_complex ? number_at(r, at + 1) : 0.0}, is_complex));
    }
    all.emplace_back(std::move(one));
  }
  return all;
}

Json json_shape(const MatrixStack& stack) {
  std::vector<int64_t> shape = stack.batch_shape;
  shape.insert(shape.end(), {stack.batch.rows, stack.batch.cols});
  return Json::array_of(shape);
}

Json json_index(const MatrixStack& stack, int64_t index) {
  std::vector<int64_t> place;
  for (auto size = stack.batch_shape.rbegin(); size != stack.batch_shape.rend(); ++size) {
    place.insert(place.begin(), index % *size);
    index /= *size;
  }
  return Json::array_of(place);
}

Json statuses_of(const StackReport& r) {
  Json::Object statuses;
  for (const auto& [status, count] : count_statuses(r.is_computed ? r.stack.batch.count : 0, r.exceptions)) {
    statuses.emplace_back(name(status), count);
  }
  return statuses;
}

Json exceptions_of(const StackReport& r) {
  Json::Array exceptions;
  for (const client::MatrixException& e : r.exceptions) {
    exceptions.emplace_back(Json::Object{{"index", json_index(r.stack, e.index)}, {"status", name(e.status)}});
  }
  return exceptions;
}

Json certificate_of(const StackReport& r) {
  if (!r.certificate) return {};
  const client::Certificate& c = *r.certificate;
  const bool is_svd = r.kind == Values::kSingular || r.kind == Values::kHyperbolic;
  const bool has_condition = r.factor_condition > 0;
  return Json::Object{{"residual", c.residual},
                      {"left_orthogonality", r.kind == Values::kComplex ? Json() : Json(c.left_orthogonality)},
                      {"right_orthogonality", is_svd ? Json(c.right_orthogonality) : Json()},
                      {"factor_condition", has_condition ? Json(r.factor_condition) : Json()},
                      {"rank", has_condition ? Json(r.rank) : Json()}};
}

Json conditions_of(const StackReport& r) {
  if (r.conditions.empty()) return {};
  const auto [of_values, of_vectors] = largest_conditions(r.stack.batch, r.conditions);
  return Json::Object{{"largest_of_eigenvalue", of_values}, {"largest_of_vectors", of_vectors}};
}

}  // namespace

Json::Object json_of_call(const StackReport& r) {
  Json::Object outputs;
  for (const NamedFile& output : r.outputs) outputs.emplace_back(output.name, output.path);
  return {{"input", r.stack.path},
          {"shape", json_shape(r.stack)},
          {"dtype", name(r.stack.batch.data_type)},
          {"matrices", r.stack.batch.count},
          {"statuses", statuses_of(r)},
          {"exceptions", exceptions_of(r)},
          {"outputs", outputs},
          {"methods", Json::array_of(r.methods)},
          {"devices", Json::array_of(r.devices)},
          {"seconds", r.seconds},
          {"server", Json::Object{{"upload_seconds", r.upload_seconds},
                                  {"queue_seconds", r.queue_seconds},
                                  {"compute_seconds", r.compute_seconds},
                                  {"download_seconds", r.download_seconds}}}};
}

Json::Object json_of(const StackReport& r, bool with_values) {
  const Spectrum s =
      r.is_computed ? spectrum_of(r.stack.batch, r.values, r.values_per_matrix, r.kind, r.complete) : Spectrum();
  Json::Array first;
  for (const auto& x : s.first) first.push_back(json_of(x, r.kind == Values::kComplex));
  Json::Object object = json_of_call(r);
  const auto add = [&](const char* key, Json value) { object.emplace_back(key, std::move(value)); };
  add("kind", name_of(r.kind));
  add("values_per_matrix", r.values_per_matrix);
  add("largest", json_of(s.largest));
  add("smallest", json_of(s.smallest));
  add("largest_real_part", json_of(s.largest_real_part));
  add("condition", json_of(s.condition));
  add("rank", json_of(s.rank));
  add("first_values", std::move(first));
  add("conditions", conditions_of(r));
  add("certificate", certificate_of(r));
  add("work", Json::Object{{"messages", r.messages},
                           {"sweeps", r.sweeps},
                           {"rotations", r.rotations},
                           {"proper_rotations", r.proper_rotations},
                           {"subspace_steps", r.subspace_steps},
                           {"members", r.members}});
  if (with_values) add("values", all_values(r));
  return object;
}

}  // namespace svdserve::cli
