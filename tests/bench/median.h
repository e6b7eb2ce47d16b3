#ifndef HOLDFAST_TESTS_BENCH_MEDIAN_H_
#define HOLDFAST_TESTS_BENCH_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace holdfast::bench {

// 0 of nothing.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_MEDIAN_H_
