/* The program's version, for --version and accelhost._VERSION. */
#pragma once

#define AH_VERSION "0.1.0"
