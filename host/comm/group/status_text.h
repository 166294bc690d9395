/* Text about the progress of a group's rank, for ranks that wait for it. Each function returns `text`. */
#pragma once

#include "comm/control/hosts.h"
#include "comm/group/backend.h"

enum { AH_STATUS_TEXT_HOST = AH_HOST_NAME + 8 };

/* ", on node2" in a job of several hosts; else "" */
const char *ah_status_text_host(struct ah_group *group, int rank, char text[AH_STATUS_TEXT_HOST]);
/* "rank 1 is at train.lua:12, all_reduce #41" */
const char *ah_status_text(struct ah_group *group, int rank, char *text, size_t bytes);
/* The same, with the rank's current status: "...; now it runs at train.lua:20"; lasts up to 0.4 s. */
const char *ah_status_text_now(struct ah_group *group, int rank, char *text, size_t bytes);
