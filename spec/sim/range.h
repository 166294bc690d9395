/* A device's memory: one range of addresses that may only be accessed while it is open.
 *
 * A block is 0xff when it is new. It has guards around it; a freed block is quarantined for a while and must still be
 * 0xff when it is reused. Not locked: the caller holds the device's `run` (driver.h of this folder). */
#pragma once

#include <deque>
#include <map>
#include <stddef.h>
#include <stdint.h>
#include <string>

namespace sim
{
class Range
{
  public:
    struct Block {
        char *at;
        size_t bytes;
        uint64_t number = 0; /* of its allocation, from 1 */
    };

    /* False when the addresses cannot be had. */
    bool reserve(size_t bytes);
    size_t bytes() const
    {
        return bytes_;
    }
    size_t used() const
    {
        return used_;
    }
    size_t count() const
    {
        return blocks_.size();
    }

    void open();
    void close();

    /* Null when there is no room. */
    void *allocate(size_t bytes);
    /* False when no block begins there. */
    bool release(void *at);
    void release_all();

    bool has(const void *at) const
    {
        return at >= base_ && at < base_ + bytes_ + addresses_;
    }

    /* Virtual memory: addresses without memory, memory without addresses, and one mapped into the other. Mapped pieces
     * have no guards; adjacent ones count as one allocation. Null or false when there is no room. */
    void *reserve_addresses(size_t bytes);
    bool free_addresses(void *at, size_t bytes);
    bool take_memory(size_t bytes);
    void give_memory(size_t bytes);
    bool map(void *at, size_t bytes);
    bool unmap(void *at, size_t bytes);
    /* Kernels may use the memory mapped there from now on; false where some is not mapped. */
    bool allow(void *at, size_t bytes);
    const std::map<char *, Block> &pieces() const
    {
        return pieces_;
    }
    /* The block that contains all these bytes; null when there is none. */
    const Block *find(const void *at, size_t bytes) const;
    /* Describe an address in words. */
    std::string place(const void *at) const;
    /* False when a guard, or with `freed` memory that was given back, has been written; then where. */
    bool check(bool freed, std::string *what) const;
    const std::map<char *, Block> &blocks() const
    {
        return blocks_;
    }

  private:
    char *take(size_t span);
    void give(char *at, size_t span);
    bool settle(std::string *what);

    char *base_ = nullptr;
    size_t bytes_ = 0, used_ = 0, high_ = 0, protected_ = 0;
    bool open_ = false;
    std::map<char *, Block> blocks_;  /* live, by where they begin */
    const Block *find_piece(char *from, size_t bytes) const;
    void protect_pieces(int protection) const;

    std::map<char *, size_t> free_;   /* stretches, guards included */
    std::map<char *, Block> pieces_;  /* mapped memory, by where it begins; number 0: not to be used yet */
    size_t addresses_ = 0, reserved_ = 0; /* behind base_ + bytes_; the number of reserved ones */
    std::deque<Block> quarantine_;    /* stretches on their way to free_ */
    size_t quarantined_ = 0;
    uint64_t made_ = 0;
    std::string broken_; /* the report of a stretch that left the quarantine */
};
} // namespace sim
