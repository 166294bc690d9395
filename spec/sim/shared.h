/* A block's shared memory: an arena from which the objects of a kernel are carved when its threads first reach them.
 *
 * All of it is 0xff when a block begins. Between objects are guards that are checked when the block ends, and that
 * AddressSanitizer refuses at once. */
#pragma once

#include <string>
#include <vector>

#include "sim.h"

namespace sim
{
enum { STATIC_LIMIT = 48 * 1024, SHARED_LIMIT = 227 * 1024 };

class Shared
{
  public:
    Shared();
    ~Shared();
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;

    void begin(size_t dynamic_bytes);
    /* The object of a declaration; null when the block's static objects pass the limit. */
    void *object(const Shared_site *site, size_t bytes, size_t alignment);
    void *dynamic() const
    {
        return objects_[0].at;
    }
    /* False when a guard was written; *broken names the object before it. */
    bool end(std::string *broken);
    size_t static_bytes() const
    {
        return static_bytes_;
    }

  private:
    struct Object {
        const Shared_site *site; /* null: the dynamic memory */
        char *at;
        size_t bytes;
    };
    void *carve(const Shared_site *site, size_t bytes, size_t alignment);

    char *arena_;
    size_t used_ = 0, dirty_ = 0, static_bytes_ = 0;
    std::vector<Object> objects_;
};
} // namespace sim
