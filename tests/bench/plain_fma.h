// The fastest that this machine multiplies and adds: the ceiling of whatever
// computes from registers.
#ifndef HOLDFAST_TESTS_BENCH_PLAIN_FMA_H_
#define HOLDFAST_TESTS_BENCH_PLAIN_FMA_H_

#include "kernels/host/thread_pool.h"

namespace holdfast::bench {

// Floating point operations of one task of RunPlainFma, a multiply-add counted
// as two.
double PlainFmaWork();

// Independent fused multiply-adds in registers, one task on each thread.
void RunPlainFma(kernels::ThreadPool& pool);

}  // namespace holdfast::bench

#endif  // HOLDFAST_TESTS_BENCH_PLAIN_FMA_H_
