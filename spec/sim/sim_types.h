/* CUDA's vector types, with their alignment. */
#pragma once

struct uint3 {
    unsigned x, y, z;
};
struct int3 {
    int x, y, z;
};
struct float3 {
    float x, y, z;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

#define AH_SIM_VECTOR2(name, type)                                                                                     \
    struct alignas(2 * sizeof(type)) name {                                                                            \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    static inline name make_##name(type x, type y)                                                                     \
    {                                                                                                                  \
        return {x, y};                                                                                                 \
    }
#define AH_SIM_VECTOR4(name, type)                                                                                     \
    struct alignas(sizeof(type) < 4 ? 4 * sizeof(type) : 16) name {                                                    \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    static inline name make_##name(type x, type y, type z, type w)                                                     \
    {                                                                                                                  \
        return {x, y, z, w};                                                                                           \
    }

AH_SIM_VECTOR2(char2, signed char)
AH_SIM_VECTOR2(uchar2, unsigned char)
AH_SIM_VECTOR2(short2, short)
AH_SIM_VECTOR2(ushort2, unsigned short)
AH_SIM_VECTOR2(int2, int)
AH_SIM_VECTOR2(uint2, unsigned)
AH_SIM_VECTOR2(float2, float)
AH_SIM_VECTOR2(double2, double)
AH_SIM_VECTOR2(longlong2, long long)
AH_SIM_VECTOR2(ulonglong2, unsigned long long)
AH_SIM_VECTOR4(char4, signed char)
AH_SIM_VECTOR4(uchar4, unsigned char)
AH_SIM_VECTOR4(short4, short)
AH_SIM_VECTOR4(ushort4, unsigned short)
AH_SIM_VECTOR4(int4, int)
AH_SIM_VECTOR4(uint4, unsigned)
AH_SIM_VECTOR4(float4, float)
