/* Operations of a whole warp: products of small matrices, whose parts are in the registers of its lanes as PTX defines
 * (mma.m16n8k16, ldmatrix); and copies to shared memory that land between their call and the wait for them (cp.async).
 * cuda/kernels/lib/matrix.cuh specifies each. */
#pragma once

#include "sim.h"

namespace sim
{
/* A lane's part in a product or a load of matrices. */
struct Tile_product {
    uint32_t a[4], b[2];
    float c[4];
};
struct Tile_load {
    const uint16_t *row;
    uint32_t to[4];
};

/* Element `place` of a register that holds two halves. */
template <typename T> inline float element(uint32_t pair, unsigned place)
{
    T x;
    x.bits = (uint16_t)(pair >> 16 * place);
    return to_float(x);
}

/* PTX: row r of A is with the lanes r % 8 * 4 + 0..3, column n of B with n * 4 + 0..3; each has two neighbours of every
 * eight along k. */
template <typename T> void multiply_together(void *const *lanes)
{
    float a[16][16], b[16][8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const Tile_product &part = *static_cast<const Tile_product *>(lanes[lane]);
        for (unsigned i = 0; i < 8; i++)
            a[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i % 2 + i / 4 * 8] = element<T>(part.a[i / 2], i % 2);
        for (unsigned i = 0; i < 4; i++)
            b[lane % 4 * 2 + i % 2 + i / 2 * 8][lane / 4] = element<T>(part.b[i / 2], i % 2);
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        Tile_product &part = *static_cast<Tile_product *>(lanes[lane]);
        for (unsigned i = 0; i < 4; i++) {
            float sum = part.c[i];
            for (unsigned k = 0; k < 16; k++)
                sum += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
            part.c[i] = sum;
        }
    }
}

/* Matrix m has its rows where lanes 8 m .. 8 m + 7 say. */
inline void load_together(void *const *lanes)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        Tile_load &part = *static_cast<Tile_load *>(lanes[lane]);
        for (unsigned m = 0; m < 4; m++)
            memcpy(&part.to[m], static_cast<const Tile_load *>(lanes[8 * m + lane / 4])->row + lane % 4 * 2, 4);
    }
}

inline void load_turned_together(void *const *lanes)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        Tile_load &part = *static_cast<Tile_load *>(lanes[lane]);
        for (unsigned m = 0; m < 4; m++) {
            part.to[m] = 0;
            for (unsigned i = 0; i < 2; i++)
                part.to[m] |= (uint32_t)static_cast<const Tile_load *>(lanes[8 * m + lane % 4 * 2 + i])->row[lane / 4]
                              << 16 * i;
        }
    }
}

inline void load_matrices(uint32_t (&to)[4], const void *row, void (*together)(void *const *), Site site)
{
    if ((uintptr_t)row % 16)
        misaligned(row);
    Tile_load part = {static_cast<const uint16_t *>(row), {0, 0, 0, 0}};
    meet_together(MATRIX_LOAD, together, &part, site);
    memcpy(to, part.to, sizeof part.to);
}
} // namespace sim

template <typename T> uint32_t ah_pair(float low, float high)
{
    return from_float<T>(low).bits | (uint32_t)from_float<T>(high).bits << 16;
}

template <typename T>
void ah_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, AH_SIM_SITE)
{
    sim::Tile_product part = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
    sim::meet_together(sim::MATRIX_MULTIPLY, sim::multiply_together<T>, &part, {file, line});
    memcpy(c, part.c, sizeof part.c);
}

static inline void ah_load_matrices(uint32_t (&to)[4], const void *row, AH_SIM_SITE)
{
    sim::load_matrices(to, row, sim::load_together, {file, line});
}
static inline void ah_load_matrices_turned(uint32_t (&to)[4], const void *row, AH_SIM_SITE)
{
    sim::load_matrices(to, row, sim::load_turned_together, {file, line});
}

/* A copy lands when it is asked for or when it is waited for, as drawn. */
class ah_copies
{
  public:
    void copy16(void *to, const void *from, bool there)
    {
        if ((uintptr_t)to % 16)
            sim::misaligned(to);
        if (there && (uintptr_t)from % 16)
            sim::misaligned(from);
        Copy copy = {to, there ? from : nullptr};
        if (sim::chance())
            land(copy);
        else if (count_ < MOST)
            waiting_[count_++] = copy;
        else
            sim::too_many_copies(MOST);
    }
    void commit()
    {
        if (groups_ == GROUPS)
            sim::too_many_copies(MOST);
        ends_[groups_++] = count_;
    }
    /* All but the last N groups. */
    template <int N> void wait()
    {
        int groups = groups_ - N, done = groups > 0 ? ends_[groups - 1] : 0;
        for (int i = 0; i < done; i++)
            land(waiting_[i]);
        count_ -= done;
        for (int i = 0; i < count_; i++)
            waiting_[i] = waiting_[i + done];
        for (int i = 0; groups > 0 && i < groups_ - groups; i++)
            ends_[i] = ends_[i + groups] - done;
        groups_ -= groups > 0 ? groups : 0;
    }

  private:
    enum { MOST = 192, GROUPS = 8 };
    struct Copy {
        void *to;
        const void *from;
    };
    static void land(const Copy &copy)
    {
        if (copy.from)
            memcpy(copy.to, copy.from, 16);
        else
            memset(copy.to, 0, 16);
    }
    Copy waiting_[MOST];
    int ends_[GROUPS], count_ = 0, groups_ = 0;
};
