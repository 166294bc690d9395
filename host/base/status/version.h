/* The program's version, for --version and accelhost._VERSION. */
#ifndef AH_BASE_VERSION_H
#define AH_BASE_VERSION_H

#define AH_VERSION "0.1.0"

#endif
