// A daemon's program on an emulated device, as a test starts it.
#ifndef HOLDFAST_TESTS_CUDA_EMULATION_PROGRAM_CONTROL_H_
#define HOLDFAST_TESTS_CUDA_EMULATION_PROGRAM_CONTROL_H_

namespace holdfast::emulation {

// Makes the device: takes flags `--emulated-...` off the front of the
// arguments:
//   --emulated-memory-mb=N  of the device
//   --emulated-uuid=N       another device than others see
//   --emulated-no-ipc       IPC is not supported
// Then reads lines from standard input, on a thread of its own that takes no
// signals:
//   NAME ERROR  the next call of this function fails with this number
//   hold NAME   the next call of it hangs; this is said on standard error
//   release     what hangs goes on
void ControlProgram(int& argc, char**& argv);

}  // namespace holdfast::emulation

#endif  // HOLDFAST_TESTS_CUDA_EMULATION_PROGRAM_CONTROL_H_
