/* Memory that all ranks of a host share: a piece of its first rank's segment after a header that counts its users. That
 * rank frees it, at its next check, when it has no users left. */
#include <stdatomic.h>
#include <stdlib.h>

#include "comm/shm/shm.h"

enum { LINE = 64 };

struct common {
    struct common *next;
    unsigned char *memory; /* the line before it */
    size_t bytes;          /* with the line */
};

static atomic_int *shm_holders(void *line)
{
    return line;
}

void shm_collect_common(struct shm_group *shm, bool all)
{
    for (struct common **at = &shm->lent; *at;) {
        struct common *piece = *at;
        bool unheld = atomic_load(shm_holders(piece->memory)) == 0;
        if (!unheld && !all) {
            at = &piece->next;
            continue;
        }
        *at = piece->next;
        if (unheld) {
            ah_segment_release_pages(piece->memory, piece->bytes);
            ah_segment_free(shm->segment, piece->memory, piece->bytes);
        }
        free(piece);
    }
}

int shm_lend(struct ah_group *group, size_t bytes, int holding, uint64_t *offset)
{
    struct shm_group *shm = shm_of(group);
    shm_collect_common(shm, false);
    struct common *piece = malloc(sizeof *piece);
    void *memory;
    if (!piece || bytes > SIZE_MAX / 2) {
        free(piece);
        return ah_fail(AH_ENOMEM, "%zu bytes wanted", bytes);
    }
    int status = ah_segment_alloc(shm->segment, bytes + LINE, true, &memory);
    if (status < 0) {
        free(piece);
        return status;
    }
    atomic_store(shm_holders(memory), holding);
    *piece = (struct common){shm->lent, memory, bytes + LINE};
    shm->lent = piece;
    *offset = ah_segment_offset(shm->segment, memory, bytes + LINE);
    return 0;
}

void *shm_borrow(struct ah_group *group, int lender, uint64_t offset)
{
    return shm_segment(shm_of(group), lender) + offset + LINE;
}

void shm_give_back(struct ah_group *group, void *memory, size_t bytes)
{
    atomic_fetch_sub(shm_holders((unsigned char *)memory - LINE), 1);
    shm_collect_common(shm_of(group), false);
}
