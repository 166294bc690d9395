/* First fit over a map of free stretches; opened and closed by mprotect up to the highest address ever given out. */
#include "range.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "poison.h"

namespace sim
{
enum : size_t { GUARD_BYTES = 256, ALIGN = 256, HUGE_PAGE = 2 << 20, ADDRESSES = 16 };

static size_t rounded(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* The guard in front, the block, at least as much guard behind. */
static size_t span_of(size_t bytes)
{
    return GUARD_BYTES + rounded(bytes, ALIGN) + GUARD_BYTES;
}

bool Range::reserve(size_t bytes)
{
    bytes_ = rounded(bytes, HUGE_PAGE);
    addresses_ = ADDRESSES * bytes_;
    void *memory = mmap(nullptr, bytes_ + addresses_ + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    base_ = reinterpret_cast<char *>(rounded(reinterpret_cast<uintptr_t>(memory), HUGE_PAGE));
    /* Protecting whole huge pages is quick, however much memory there is. */
    madvise(base_, bytes_ + addresses_, MADV_HUGEPAGE);
    free_[base_] = bytes_;
    return true;
}

void Range::open()
{
    size_t wanted = rounded(high_, HUGE_PAGE);
    if (open_ && protected_ == wanted)
        return;
    mprotect(base_, wanted, PROT_READ | PROT_WRITE);
    if (!open_)
        protect_pieces(PROT_READ | PROT_WRITE);
    protected_ = wanted;
    open_ = true;
}

void Range::close()
{
    if (open_ && protected_)
        mprotect(base_, protected_, PROT_NONE);
    if (open_)
        protect_pieces(PROT_NONE);
    open_ = false;
}

/* Neighbours by one call. */
void Range::protect_pieces(int protection) const
{
    for (auto piece = pieces_.begin(); piece != pieces_.end();) {
        char *at = piece->first, *end = at;
        for (; piece != pieces_.end() && piece->first == end; ++piece)
            end += piece->second.bytes;
        mprotect(at, (size_t)(end - at), protection);
    }
}

void *Range::reserve_addresses(size_t bytes)
{
    if (bytes > addresses_ - reserved_)
        return nullptr;
    void *at = base_ + bytes_ + reserved_;
    reserved_ += bytes;
    return at;
}

/* They are not reserved a second time, so that a stray address stays one. */
bool Range::free_addresses(void *at, size_t bytes)
{
    char *from = static_cast<char *>(at);
    auto next = pieces_.lower_bound(from);
    return from >= base_ + bytes_ && bytes <= reserved_ && (next == pieces_.end() || next->first >= from + bytes);
}

bool Range::take_memory(size_t bytes)
{
    if (bytes > bytes_ - used_)
        return false;
    used_ += bytes;
    return true;
}

void Range::give_memory(size_t bytes)
{
    used_ -= bytes;
}

bool Range::map(void *at, size_t bytes)
{
    char *from = static_cast<char *>(at);
    auto next = pieces_.upper_bound(from);
    bool over = next != pieces_.end() && from + bytes > next->first;
    if (next != pieces_.begin()) {
        --next;
        over = over || next->first + next->second.bytes > from;
    }
    if (over || from < base_ + bytes_ || from + bytes > base_ + bytes_ + reserved_)
        return false;
    mprotect(from, bytes, PROT_READ | PROT_WRITE);
    __asan_unpoison_memory_region(from, bytes);
    memset(from, POISON, bytes);
    if (!open_)
        mprotect(from, bytes, PROT_NONE);
    pieces_[from] = {from, bytes, 0};
    return true;
}

bool Range::unmap(void *at, size_t bytes)
{
    char *from = static_cast<char *>(at);
    for (char *piece = from; piece < from + bytes;) {
        auto found = pieces_.find(piece);
        if (found == pieces_.end() || found->second.bytes > (size_t)(from + bytes - piece))
            return false;
        piece += found->second.bytes;
    }
    while (bytes) {
        auto found = pieces_.find(from);
        size_t one = found->second.bytes;
        madvise(from, one, MADV_DONTNEED);
        mprotect(from, one, PROT_NONE);
        pieces_.erase(found);
        from += one;
        bytes -= one;
    }
    return true;
}

bool Range::allow(void *at, size_t bytes)
{
    char *from = static_cast<char *>(at), *end = from + bytes;
    for (auto piece = pieces_.find(from); from < end; piece = pieces_.find(from)) {
        if (piece == pieces_.end())
            return false;
        if (!piece->second.number)
            piece->second.number = ++made_;
        from += piece->second.bytes;
    }
    return true;
}

const Range::Block *Range::find_piece(char *from, size_t bytes) const
{
    auto next = pieces_.upper_bound(from);
    if (next == pieces_.begin())
        return nullptr;
    --next;
    const Block *first = &next->second;
    char *end = next->first;
    for (; next != pieces_.end() && next->first == end && next->second.number; ++next) {
        end += next->second.bytes;
        if (from < end && bytes <= (size_t)(end - from))
            return first;
    }
    return nullptr;
}

char *Range::take(size_t span)
{
    for (auto stretch = free_.begin(); stretch != free_.end(); ++stretch) {
        if (stretch->second < span)
            continue;
        char *at = stretch->first;
        size_t rest = stretch->second - span;
        free_.erase(stretch);
        if (rest)
            free_[at + span] = rest;
        return at;
    }
    return nullptr;
}

void Range::give(char *at, size_t span)
{
    auto next = free_.lower_bound(at);
    if (next != free_.end() && at + span == next->first) {
        span += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        auto before = next;
        --before;
        if (before->first + before->second == at) {
            before->second += span;
            return;
        }
    }
    free_[at] = span;
}

static bool still_poisoned(const Range::Block &stretch, std::string *what)
{
    long other = first_other(stretch.at + GUARD_BYTES, stretch.bytes - 2 * GUARD_BYTES, POISON);
    if (other < 0)
        return true;
    char text[128];
    snprintf(text, sizeof text, "freed memory was written: byte %ld of a block of about %zu bytes at %p", other,
             stretch.bytes - 2 * GUARD_BYTES, (void *)(stretch.at + GUARD_BYTES));
    *what = text;
    return false;
}

/* The oldest stretch of the quarantine may be used again. */
bool Range::settle(std::string *what)
{
    if (quarantine_.empty())
        return false;
    Block stretch = quarantine_.front();
    quarantine_.pop_front();
    quarantined_ -= stretch.bytes;
    still_poisoned(stretch, what);
    give(stretch.at, stretch.bytes);
    return true;
}

void *Range::allocate(size_t bytes)
{
    if (bytes > bytes_)
        return nullptr;
    bool was_open = open_;
    open();
    size_t span = span_of(bytes);
    while (quarantined_ > bytes_ / 4)
        settle(&broken_);
    char *at = span <= bytes_ - used_ ? take(span) : nullptr;
    while (!at && span <= bytes_ - used_ && settle(&broken_))
        at = take(span);
    if (at) {
        if ((size_t)(at + span - base_) > high_)
            high_ = (size_t)(at + span - base_);
        open();
        char *block = at + GUARD_BYTES;
        __asan_unpoison_memory_region(block, bytes);
        memset(block, POISON, bytes);
        guard_close(at, GUARD_BYTES);
        guard_close(block + bytes, (size_t)(at + span - block) - bytes);
        blocks_[block] = {block, bytes, ++made_};
        used_ += span;
        at = block;
    }
    if (!was_open)
        close();
    return at;
}

bool Range::release(void *at)
{
    auto found = blocks_.find(static_cast<char *>(at));
    if (found == blocks_.end())
        return false;
    bool was_open = open_;
    open();
    Block block = found->second;
    size_t span = span_of(block.bytes);
    blocks_.erase(found);
    used_ -= span;
    __asan_unpoison_memory_region(block.at, span - GUARD_BYTES);
    memset(block.at, POISON, span - 2 * GUARD_BYTES);
    __asan_poison_memory_region(block.at, span - GUARD_BYTES);
    quarantine_.push_back({block.at - GUARD_BYTES, span});
    quarantined_ += span;
    if (!was_open)
        close();
    return true;
}

void Range::release_all()
{
    open();
    while (!blocks_.empty())
        release(blocks_.begin()->first);
    while (!pieces_.empty()) {
        Block piece = pieces_.begin()->second;
        unmap(piece.at, piece.bytes);
        used_ -= piece.bytes;
    }
    while (settle(&broken_))
        ;
    broken_.clear();
    close();
}

const Range::Block *Range::find(const void *at, size_t bytes) const
{
    char *from = static_cast<char *>(const_cast<void *>(at));
    if (from >= base_ + bytes_)
        return find_piece(from, bytes);
    auto next = blocks_.upper_bound(from);
    if (next == blocks_.begin())
        return nullptr;
    const Block &block = (--next)->second;
    size_t before = (size_t)(from - block.at);
    return before <= block.bytes && bytes <= block.bytes - before ? &block : nullptr;
}

std::string Range::place(const void *at) const
{
    char *from = static_cast<char *>(const_cast<void *>(at));
    if (from >= base_ + bytes_)
        return find_piece(from, 1) ? "mapped memory, too near its end" : "addresses without memory";
    auto next = blocks_.upper_bound(from);
    if (next == blocks_.begin())
        return "in front of every allocation";
    const Block &block = (--next)->second;
    char text[128];
    long offset = (long)(from - block.at), past = offset - (long)block.bytes;
    if (past < 0)
        snprintf(text, sizeof text, "byte %ld of an allocation of %zu bytes", offset, block.bytes);
    else
        snprintf(text, sizeof text, "%ld bytes behind an allocation of %zu bytes", past, block.bytes);
    return text;
}

bool Range::check(bool freed, std::string *what) const
{
    if (!broken_.empty()) {
        *what = broken_;
        return false;
    }
    for (const auto &entry : blocks_) {
        const Block &block = entry.second;
        const char *end = block.at + block.bytes;
        size_t behind = (size_t)(block.at - GUARD_BYTES + span_of(block.bytes) - end);
        long before = first_other(block.at - GUARD_BYTES, GUARD_BYTES, GUARD), after = first_other(end, behind, GUARD);
        if (before < 0 && after < 0)
            continue;
        char text[128];
        if (after >= 0)
            snprintf(text, sizeof text, "byte %ld behind an allocation of %zu bytes was written", after, block.bytes);
        else
            snprintf(text, sizeof text, "byte %ld before an allocation of %zu bytes was written",
                     (long)GUARD_BYTES - before, block.bytes);
        *what = text;
        return false;
    }
    for (const Block &stretch : quarantine_)
        if (freed && !still_poisoned(stretch, what))
            return false;
    return true;
}
} // namespace sim
