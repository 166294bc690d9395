#include "recover_scene.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "comm/control/replay_log.h"
#include "comm/recover/recover.h"

struct scene *scene;

void place(int rank, int step, int number)
{
    int victim = rank;
    if (atomic_load(&scene->step) == step && atomic_load(&scene->place) == number &&
        atomic_compare_exchange_strong(&scene->victim, &victim, -1))
        kill(getpid(), SIGKILL);
}

static pid_t scene_begin(int rank)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid)
        return pid;
    struct ah_group *group;
    struct ah_seat seat = {
        .control = scene->control, .rank = rank, .size = scene->size, .timeout_ns = scene->timeout_ns};
    alarm(test_limit(60));
    ah_set_num_threads(1);
    ah_recovery_join(scene->control, rank);
    atomic_store(&ah_rank_entry(scene->control, rank)->pid, (int)getpid());
    int status = ah_group_open(&group, &ah_replay_backend, &seat);
    while (status == 0 && atomic_load(&scene->slow) && ah_rank_entry(scene->control, rank)->replaced)
        atomic_store(&scene->slow, usleep(1300000)); /* longer than peers wait for one that is not replaced */
    status = status ? status : scene->body(group, rank);
    if (status < 0 && atomic_fetch_add(&scene->failures, 1) == 0)
        snprintf(scene->text, sizeof scene->text, "%s", ah_error_text());
    ah_control_leave(scene->control, rank, status < 0 ? AH_RANK_FAILED : AH_RANK_ENDED, ah_error_text(), false);
    _exit(0);
}

bool play(void)
{
    pid_t pid[MOST];
    for (int r = 0; r < scene->size; r++)
        pid[r] = scene_begin(r);
    for (int left = scene->size; left > 0;) {
        int status, r = 0;
        pid_t ended = waitpid(-1, &status, 0);
        while (r < scene->size && pid[r] != ended)
            r++;
        if (r == scene->size)
            continue;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && ah_control_replace(scene->control, r)) {
            atomic_fetch_add(&scene->deaths, 1);
            pid[r] = scene_begin(r);
            continue;
        }
        left--;
        if (status)
            fprintf(stderr, "rank %d ended with status %x\n", r, status);
        ah_control_leave(scene->control, r, AH_RANK_DIED, NULL, false);
    }
    return atomic_load(&scene->failures) == 0;
}

bool open_scene(int (*body)(struct ah_group *group, int rank), int size, int steps)
{
    scene = mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (scene == MAP_FAILED || ah_control_create(&scene->control, size) || ah_replay_enable(scene->control) ||
        ah_control_map_segments(scene->control))
        return false;
    scene->body = body;
    scene->size = size;
    scene->steps = steps;
    scene->timeout_ns = 20000000000;
    atomic_store(&scene->victim, -1);
    return true;
}

void close_scene(void)
{
    ah_control_close(scene->control);
    munmap(scene, sizeof *scene);
}

bool learn(int (*body)(struct ah_group *group, int rank), int size, int steps, uint64_t sum[MOST])
{
    bool good = open_scene(body, size, steps) && play();
    if (!good)
        fprintf(stderr, "undisturbed: %s\n", scene->text);
    for (int r = 0; r < size; r++)
        sum[r] = atomic_load(&scene->sum[r]);
    close_scene();
    return good;
}

bool same_sums(const uint64_t sum[MOST])
{
    bool same = true;
    for (int r = 0; r < scene->size; r++)
        same &= atomic_load(&scene->sum[r]) == sum[r];
    return same;
}

bool survives(int (*body)(struct ah_group *group, int rank), int size, int victim, int step, int number,
              const uint64_t sum[MOST])
{
    bool good = open_scene(body, size, STEPS);
    atomic_store(&scene->step, step);
    atomic_store(&scene->place, number);
    atomic_store(&scene->victim, victim);
    good = good && play() && same_sums(sum) && atomic_load(&scene->deaths) == 1;
    if (!good)
        fprintf(stderr, "rank %d of %d killed in step %d at place %d: %d deaths, sums %s: %s\n", victim, size, step,
                number, atomic_load(&scene->deaths), same_sums(sum) ? "alike" : "differ", scene->text);
    close_scene();
    return good;
}
