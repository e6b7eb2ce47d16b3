// holdfast-engine on an emulated device.
#include "tests/cuda_emulation/program_control.h"

int EngineMain(int argc, char** argv);

int main(int argc, char** argv) {
  holdfast::emulation::ControlProgram(argc, argv);
  return EngineMain(argc, argv);
}
