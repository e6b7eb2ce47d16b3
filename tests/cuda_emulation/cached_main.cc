// holdfast-cached on an emulated device.
#include "tests/cuda_emulation/program_control.h"

int CachedMain(int argc, char** argv);

int main(int argc, char** argv) {
  holdfast::emulation::ControlProgram(argc, argv);
  return CachedMain(argc, argv);
}
