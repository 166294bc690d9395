/* A program for every processor has its hot files several times, each built for a level of x86-64, and runs those of
 * one level: v2 (SSE4.2), v3 (AVX2, FMA, F16C) or v4 (AVX-512). A program for one processor (the usual build) has them
 * once. scripts/levels.sh generates the jumps through which other files call them. */
#pragma once

/* Choose the best level that the processor has, or the one that $ACCELHOST_CPU names; once, before any of those files
 * is called. AH_EINVAL: no such level, or the processor lacks it. */
int ah_level_choose(void);

/* "x86-64-v3"; "native" in a program for one processor. */
const char *ah_level_name(void);
