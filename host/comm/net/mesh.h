/* Connections between the leaders of a job's hosts, each to each, by TCP. They find each other through the job's store
 * and prove that they know its secret, as clients of the store do (store.h). Later data is neither encrypted nor
 * signed. */
#pragma once

#include "comm/control/hosts.h"

/* Connect to every other leader; `purpose` distinguishes this mesh from others of the job. fd[h] is a socket that does
 * not block, -1 for the own host. AH_ETIMEOUT with the host that did not connect. */
int ah_mesh_open(const struct ah_hosts *hosts, const char *purpose, int64_t timeout_ns, int fd[AH_HOSTS_MAX]);
void ah_mesh_close(int fd[AH_HOSTS_MAX]);
