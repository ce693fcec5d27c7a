#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

/// A Chrome trace as its readers see it.
class ReadTrace {
 public:
  explicit ReadTrace(const std::string& json) : json_(nlohmann::json::parse(json)) {
    for (const auto& entry : json_["traceEvents"]) {
      phases_[entry.at("ph").get<std::string>()].push_back(entry);
    }
    for (const auto& name : of("M")) {
      const auto text = [&] { return name.at("args").at("name").get<std::string>(); };
      if (name.at("name") == "process_name") processes_[name.at("pid").get<std::int64_t>()] = text();
      if (name.at("name") == "thread_name") threads_[row(name)] = text();
    }
  }

  [[nodiscard]] const nlohmann::json& json() const { return json_; }
  [[nodiscard]] const std::vector<nlohmann::json>& of(const std::string& phase) const {
    static const std::vector<nlohmann::json> none;
    const auto found = phases_.find(phase);
    return found != phases_.end() ? found->second : none;
  }

  /// The slices named `name`.
  [[nodiscard]] std::vector<nlohmann::json> slices(const std::string& name) const {
    std::vector<nlohmann::json> found;
    for (const auto& slice : of("X")) {
      if (slice.at("name") == name) found.push_back(slice);
    }
    return found;
  }

  /// "device host:0/device thread" for what lies there.
  [[nodiscard]] std::string row_of(const nlohmann::json& entry) const {
    return name_in(processes_, entry.at("pid").get<std::int64_t>()) + "/" + name_in(threads_, row(entry));
  }

  /// What is wrong with it, if anything: slices of one row that overlap, arrows without a beginning, from the future,
  /// or that begin or end where no slice is.
  [[nodiscard]] std::string fault() const {
    std::map<Row, std::vector<std::int64_t>> open;
    std::map<Row, std::vector<std::pair<std::int64_t, std::int64_t>>> slices;
    for (const auto& slice : of("X")) {
      const std::int64_t begin = in_ns(slice.at("ts"));
      const std::int64_t end = begin + in_ns(slice.at("dur"));
      if (end < begin) return "a slice ends before it begins: " + slice.dump();
      auto& ends = open[row(slice)];
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (!ends.empty() && ends.back() < end) return "slices overlap: " + slice.dump();
      ends.push_back(end);
      slices[row(slice)].emplace_back(begin, end);
    }
    const auto lies_in_a_slice = [&](const nlohmann::json& arrow) {
      const std::int64_t at = in_ns(arrow.at("ts"));
      const auto& all = slices[row(arrow)];
      auto after =
          std::upper_bound(all.begin(), all.end(), at, [](auto time, const auto& s) { return time < s.first; });
      for (int back = 0; back < 64 && after != all.begin(); ++back) {
        if ((--after)->second >= at) return true;
      }
      return false;
    };
    std::map<std::int64_t, std::int64_t> begun;
    for (const auto& arrow : of("s")) {
      if (!begun.emplace(arrow.at("id").get<std::int64_t>(), in_ns(arrow.at("ts"))).second)
        return "two arrows of one id";
      if (!lies_in_a_slice(arrow)) return "an arrow begins in no slice: " + arrow.dump();
    }
    for (const auto& arrow : of("f")) {
      const auto beginning = begun.find(arrow.at("id").get<std::int64_t>());
      if (beginning == begun.end()) return "an arrow has no beginning: " + arrow.dump();
      if (beginning->second > in_ns(arrow.at("ts"))) return "an arrow points backwards: " + arrow.dump();
      if (arrow.at("bp") != "e" || !lies_in_a_slice(arrow)) return "an arrow ends in no slice: " + arrow.dump();
    }
    return of("s").size() == of("f").size() ? "" : "an arrow has no end";
  }

 private:
  using Row = std::pair<std::int64_t, std::int64_t>;

  static Row row(const nlohmann::json& entry) {
    return {entry.at("pid").get<std::int64_t>(), entry.at("tid").get<std::int64_t>()};
  }
  static std::int64_t in_ns(const nlohmann::json& microseconds) {
    return std::llround(microseconds.get<double>() * 1000);
  }

  template <class Key>
  static std::string name_in(const std::map<Key, std::string>& names, const Key& key) {
    const auto found = names.find(key);
    return found != names.end() ? found->second : std::string();
  }

  nlohmann::json json_;
  std::map<std::string, std::vector<nlohmann::json>> phases_;
  std::map<std::int64_t, std::string> processes_;
  std::map<Row, std::string> threads_;
};

}  // namespace cox::test
