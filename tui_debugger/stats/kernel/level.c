/* The level of this processor. */
#include "kernel.h"

#if TDBG_LEVEL == 0

#if defined(__x86_64__)
#include <cpuid.h>

static int has(uint32_t bits, uint32_t wanted)
{
    return (bits & wanted) == wanted;
}

/* 3 or 4: x86-64-v3 or v4, if the system keeps the registers that these use; else 0. */
__attribute__((visibility("default"))) int tdbg_level(void)
{
    uint32_t a, b, c, d, more, low, high;
    /* sse3 ssse3 fma cx16 sse4.1 sse4.2 movbe popcnt osxsave avx f16c; lahf lzcnt; bmi1 avx2 bmi2; avx512 f dq cd bw vl */
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, 0x38d83201))
        return 0;
    if (!__get_cpuid(0x80000001, &a, &b, &more, &d) || !has(more, 1u << 0 | 1u << 5))
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, 1u << 3 | 1u << 5 | 1u << 8))
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!has(low, 0x6))
        return 0;
    return has(low, 0xe6) && has(b, 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31) ? 4 : 3;
}
#else
__attribute__((visibility("default"))) int tdbg_level(void)
{
    return 0;
}
#endif
#endif
