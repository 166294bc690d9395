/* Carves shared objects with a guard behind each; only memory that the last block touched is poisoned again. */
#include "shared.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "poison.h"

namespace sim
{
/* Room for guards and alignment in addition to a block's limit. */
enum { ARENA = SHARED_LIMIT + STATIC_LIMIT + 64 * 1024, GUARD_BYTES = 64 };

Shared::Shared()
{
    arena_ = static_cast<char *>(mmap(nullptr, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (arena_ == MAP_FAILED)
        abort();
    dirty_ = ARENA;
}

Shared::~Shared()
{
    __asan_unpoison_memory_region(arena_, ARENA);
    munmap(arena_, ARENA);
}

void Shared::begin(size_t dynamic_bytes)
{
    __asan_unpoison_memory_region(arena_, dirty_);
    memset(arena_, POISON, dirty_);
    __asan_poison_memory_region(arena_, ARENA);
    objects_.clear();
    static_bytes_ = 0;
    guard_close(arena_, GUARD_BYTES);
    used_ = GUARD_BYTES;
    carve(nullptr, dynamic_bytes, 128);
}

void *Shared::carve(const Shared_site *site, size_t bytes, size_t alignment)
{
    /* The guard before an object reaches up to it, the one behind begins with the byte after it. */
    size_t at = (used_ + alignment - 1) / alignment * alignment;
    if (at + bytes + GUARD_BYTES > ARENA)
        return nullptr;
    guard_close(arena_ + used_, at - used_);
    __asan_unpoison_memory_region(arena_ + at, bytes);
    guard_close(arena_ + at + bytes, GUARD_BYTES);
    used_ = at + bytes + GUARD_BYTES;
    dirty_ = used_;
    objects_.push_back({site, arena_ + at, bytes});
    return arena_ + at;
}

void *Shared::object(const Shared_site *site, size_t bytes, size_t alignment)
{
    for (const Object &object : objects_)
        if (object.site == site)
            return object.at;
    static_bytes_ += bytes;
    if (static_bytes_ > STATIC_LIMIT || static_bytes_ + objects_[0].bytes > SHARED_LIMIT)
        return nullptr;
    return carve(site, bytes, alignment < 16 ? 16 : alignment);
}

bool Shared::end(std::string *broken)
{
    const char *at = arena_;
    for (size_t i = 0; i <= objects_.size(); i++) {
        const char *next = i < objects_.size() ? objects_[i].at : arena_ + used_;
        if (first_other(at, (size_t)(next - at), GUARD) >= 0) {
            const Object &object = objects_[i ? i - 1 : 0];
            char line[32];
            snprintf(line, sizeof line, "%zu", object.bytes);
            *broken = std::string(i ? "behind" : "before") + " " +
                      (object.site ? object.site->name : "the dynamic shared memory") + " of " + line + " bytes";
            return false;
        }
        if (i < objects_.size())
            at = objects_[i].at + objects_[i].bytes;
    }
    return true;
}
} // namespace sim
