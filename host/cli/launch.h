/* accelhost launch [options] script.lua args...: one process per rank, supervised until the job ends.
 *
 * Exit codes: 0 every rank ended with 0 · 2 usage, also when every rank ended with 2 before its first collective · 3 a
 * rank failed · 4 a collective timed out · 128+n this process was asked to end by signal n. The ranks die with this
 * process, whatever kills it. */
#ifndef AH_CLI_LAUNCH_H
#define AH_CLI_LAUNCH_H

int ah_cli_launch(int argc, char **argv); /* the arguments after the word `launch` */

#endif
