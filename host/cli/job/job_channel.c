/* The channels of a job's ranks, as its own end sees them (base/io/frames.h). The caller reads a rank's output from
 * before a message before it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/io/frames.h"
#include "base/status/status.h"
#include "cli/job/job_state.h"

static int job_channel_watch(struct ah_job *job, int rank, int how)
{
    struct ah_frames *frames = job->channel[rank];
    struct epoll_event event = {
        .events = EPOLLIN | (ah_frames_is_unsent(frames) ? EPOLLOUT : 0),
        .data.u32 = (uint32_t)(rank * AH_JOB_SOURCES + AH_JOB_CHANNEL),
    };
    if (epoll_ctl(job->epoll, how, ah_frames_fd(frames), &event))
        return ah_fail(AH_EIO, "cannot watch rank %d: %s", job->first + rank, strerror(errno));
    return 0;
}

int ah_job_open_channel(struct ah_job *job, int rank, int fd)
{
    AH_TRY(ah_frames_open(&job->channel[rank], fd));
    return job_channel_watch(job, rank, EPOLL_CTL_ADD);
}

void ah_job_close_channel(struct ah_job *job, int rank)
{
    ah_frames_close(job->channel[rank]); /* which removes it from the epoll set */
    job->channel[rank] = NULL;
}

void ah_job_pump_channel(struct ah_job *job, int rank)
{
    struct ah_frames *frames = job->channel[rank];
    char *bytes;
    size_t count;
    if (!frames)
        return;
    int received = ah_frames_pull(frames), sent = received < 0 ? received : ah_frames_push(frames);
    while (ah_frames_take(frames, &bytes, &count)) {
        job->options.message(job->options.context, rank, bytes, count);
        free(bytes);
    }
    if (received < 0 || sent < 0)
        ah_job_close_channel(job, rank);
    else
        job_channel_watch(job, rank, EPOLL_CTL_MOD);
}

int ah_job_send(struct ah_job *job, int rank, const void *bytes, size_t count)
{
    int status = 0;
    if (rank < 0 || rank >= job->size)
        return ah_fail(AH_EINVAL, "rank %d is none of this job's %d", rank, job->size);
    struct ah_frames *frames = job->channel[rank];
    if (!frames)
        return ah_fail(AH_EPEER, "rank %d listens no more", rank);
    AH_TRYGO(ah_frames_put(frames, bytes, count), out);
    AH_TRYGO(ah_frames_push(frames), out);
    AH_TRYGO(job_channel_watch(job, rank, EPOLL_CTL_MOD), out);
out:
    return status == AH_EPEER ? ah_fail(status, "rank %d listens no more", rank) : status;
}
