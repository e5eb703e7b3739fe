/* What one machine can do at most, by loops that do nothing else. Compiled on the spot.

   peak fma32|fma64 THREADS SECONDS      independent chains r = r * a + b in vector registers
   peak dot16|dot8 THREADS SECONDS       the same of dot products of BF16, and of bytes
   peak clock SECONDS                    one chain of additions, each a clock long
   peak triad THREADS SECONDS BYTES      a[i] = b[i] + s * c[i] over three arrays of BYTES each

   It prints one line of JSON: the work of a round (FLOPs, additions, bytes), the seconds of the best
   and of all rounds. A round is from the first thread that begins to the last that ends. With a = b
   = 1 a chain counts its own steps, which is exact in a float up to 2^24, and the sum over all
   chains is checked: no step can be left out. */
#define _GNU_SOURCE
#include <pthread.h>
#ifdef __linux__
#include <sched.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define WIDTH 64 /* bytes of a register */
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
#if defined(__AVX512F__) || defined(__aarch64__) /* 32 registers */
#define CHAINS 24
#define EACH(X) HALF(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#else
#define CHAINS 12
#define EACH(X) HALF(X)
#endif
#define HALVES 12
#define HALF(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#if defined(__FMA__) || defined(__aarch64__)
#define FUSED 1
#else
#define FUSED 0
#endif
#define STEPS (1L << 17) /* about a millisecond: short enough to fall between two disturbances */
#define SECTIONS 16 /* of the arrays, one in a round: the others have passed the caches since */
#define WAKING 2e-4 /* seconds */
#define LANES(T) (WIDTH / (long)sizeof(T))

static volatile int one = 1; /* so that the compiler does not know what it multiplies by */
#define VALUE(k) k,
static volatile long begins[] = {EACH(VALUE)};

#define BEGIN(k) v r##k = zero; for (long i = 0; i < lanes; i++) r##k[i] = begins[k];
#define STEP(k) r##k = r##k * a + b;
#define ADD(k) for (long i = 0; i < lanes; i++) sum += (double)r##k[i];
#define KERNEL(NAME, T)                                                              \
    typedef T v_##NAME __attribute__((vector_size(WIDTH)));                          \
    static __attribute__((noinline)) int NAME(void) {                                \
        typedef v_##NAME v;                                                          \
        const long lanes = LANES(T);                                                 \
        v zero = {0}, a = zero + (T)one, b = zero + (T)one;                          \
        EACH(BEGIN)                                                                  \
        for (long i = 0; i < STEPS; i++) { EACH(STEP) }                              \
        double sum = 0;                                                              \
        EACH(ADD)                                                                    \
        return sum == (double)lanes * (CHAINS * (CHAINS - 1) / 2.0 + CHAINS * (double)STEPS); \
    }
KERNEL(fma32, float)
KERNEL(fma64, double)

/* Dot products: an instruction adds 2 (BF16) or 4 (bytes) products to each lane, so that ones count
   2 or 4. It is written out, as compilers copy the sum, which it overwrites, to and fro. */
#if defined(__AVX512BF16__) || defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#include <immintrin.h>
#endif
#define DOT(NAME, V, LANE, FILL, X, STEP, PRODUCTS)                                  \
    static __attribute__((noinline)) int NAME(void) {                                \
        union { V v; LANE each[sizeof(V) / sizeof(LANE)]; } lane;                    \
        X;                                                                           \
        HALF(FILL)                                                                   \
        for (long i = 0; i < STEPS; i++) { HALF(STEP) }                              \
        double sum = 0, lanes = sizeof(V) / sizeof(LANE);                            \
        HALF(GATHER)                                                                 \
        return sum == lanes * (HALVES * (HALVES - 1) / 2.0 + PRODUCTS * HALVES * (double)STEPS); \
    }
#define GATHER(k) lane.v = d##k; for (int i = 0; i < (int)lanes; i++) sum += (double)lane.each[i];
#if defined(__AVX512BF16__)
#define FILL16(k) __m512 d##k = _mm512_set1_ps((float)begins[k]);
#define STEP16(k) __asm__("vdpbf16ps %1, %1, %0" : "+v"(d##k) : "v"(x));
#define ONE16 __m512i x = _mm512_set1_epi16((short)(0x3F80 * one)) /* 0x3F80 is 1.0 */
DOT(bf16, __m512, float, FILL16, ONE16, STEP16, 2)
#define BF16 (2.0 * 32 * HALVES * STEPS)
#else
static int bf16(void) { return 0; }
#define BF16 0.0
#endif
#if defined(__AVX512VNNI__)
#define FILL8(k) __m512i d##k = _mm512_set1_epi32((int)begins[k]);
#define STEP8(k) __asm__("vpdpbusd %1, %1, %0" : "+v"(d##k) : "v"(x));
DOT(int8, __m512i, int, FILL8, __m512i x = _mm512_set1_epi8((char)one), STEP8, 4)
#define INT8 (2.0 * 64 * HALVES * STEPS)
#elif defined(__AVXVNNI__)
#define FILL8(k) __m256i d##k = _mm256_set1_epi32((int)begins[k]);
#define STEP8(k) __asm__("%{vex%} vpdpbusd %1, %1, %0" : "+x"(d##k) : "x"(x));
DOT(int8, __m256i, int, FILL8, __m256i x = _mm256_set1_epi8((char)one), STEP8, 4)
#define INT8 (2.0 * 32 * HALVES * STEPS)
#else
static int int8(void) { return 0; }
#define INT8 0.0
#endif

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define PLUS x += k; __asm__ volatile("" : "+r"(x), "+r"(k)); /* k is unknown: nothing folds */
#define PLUS8 PLUS PLUS PLUS PLUS PLUS PLUS PLUS PLUS
static int chain(void) {
    long x = 0, k = one;
    for (long i = 0; i < STEPS / 16; i++) {
        PLUS8 PLUS8 PLUS8 PLUS8 PLUS8 PLUS8 PLUS8 PLUS8
    }
    return x == STEPS * 4;
}

enum kind { FMA32, FMA64, DOT16, DOT8, TRIAD, CLOCK };
static enum kind kind;
static int threads = 1, stop, failed;
static int arrived; /* at the barrier */
static long generation;
static long elements; /* doubles that one thread goes through in a round, of each array */
static double limit, start, *first, *last, best = 1e30, total;
static long rounds;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

static void together(void) {
    pthread_mutex_lock(&lock);
    long mine = generation;
    if (++arrived == threads) {
        arrived = 0;
        generation++;
        pthread_cond_broadcast(&released);
    }
    while (generation == mine) pthread_cond_wait(&released, &lock);
    pthread_mutex_unlock(&lock);
}

static void pin(__attribute__((unused)) long id) { /* the id-th of the CPUs that are allowed */
#ifdef __linux__
    cpu_set_t allowed, own;
    if (threads < 2 || sched_getaffinity(0, sizeof allowed, &allowed)) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && id-- == 0) {
            CPU_ZERO(&own);
            CPU_SET(cpu, &own);
            sched_setaffinity(0, sizeof own, &own);
            return;
        }
#endif
}

static double *array(double value) {
    double *found = malloc((size_t)(SECTIONS * elements) * sizeof *found);
    if (!found) exit(3);
    for (long i = 0; i < SECTIONS * elements; i++) found[i] = value;
    return found;
}

static int triad(double *restrict a, const double *restrict b, const double *restrict c) {
    double s = 2 + one;
    for (long i = 0; i < elements; i++) a[i] = b[i] + s * c[i];
    int right = a[0] == 7 && a[elements / 2] == 7 && a[elements - 1] == 7;
    a[0] = a[elements / 2] = a[elements - 1] = 0; /* so that the next time is checked, too */
    return right;
}

static void score(double begun) { /* by one thread, while the others wait */
    double from = first[0], to = last[0];
    for (int i = 1; i < threads; i++) {
        if (first[i] < from) from = first[i];
        if (last[i] > to) to = last[i];
    }
    if (to - from < best) best = to - from;
    total += to - from;
    rounds++;
    stop = rounds >= (kind == TRIAD ? 2 * SECTIONS : 3) && now() - begun > limit;
    start = now() + WAKING;
}

static void *work(void *argument) {
    long id = (long)argument;
    pin(id);
    double *a = 0, *b = 0, *c = 0;
    if (kind == TRIAD) a = array(0), b = array(1), c = array(2);
    double begun = now();
    for (long round = 0;; round++) {
        long at = round % SECTIONS * elements;
        together();
        if (stop) break;
        while (threads > 1 && now() < start) {} /* all of them at once, once all are awake */
        first[id] = now();
        int right = kind == FMA32   ? fma32()
                    : kind == FMA64 ? fma64()
                    : kind == DOT16 ? bf16()
                    : kind == DOT8  ? int8()
                    : kind == CLOCK ? chain()
                                    : triad(a + at, b + at, c + at);
        last[id] = now();
        if (!right) __atomic_store_n(&failed, 1, __ATOMIC_RELAXED);
        together();
        if (id == 0) score(begun);
    }
    return 0;
}

static double amount(void) { /* of work in a round */
    if (kind == TRIAD) return 3.0 * sizeof(double) * (double)elements * threads;
    if (kind == CLOCK) return 4.0 * STEPS;
    if (kind == DOT16 || kind == DOT8) return (kind == DOT16 ? BF16 : INT8) * threads;
    long lanes = kind == FMA32 ? LANES(float) : LANES(double);
    return 2.0 * CHAINS * (double)lanes * STEPS * threads;
}

int main(int count, char **arguments) {
    const char *names[] = {"fma32", "fma64", "dot16", "dot8", "triad", "clock"};
    if (count < 3) return 2;
    for (kind = FMA32; kind <= CLOCK && strcmp(arguments[1], names[kind]); kind++) {}
    if (kind > CLOCK || (kind != CLOCK && count < 4) || (kind == TRIAD && count < 5)) return 2;
    if (kind != CLOCK) threads = atoi(arguments[2]);
    limit = atof(arguments[kind == CLOCK ? 2 : 3]);
    if (threads < 1 || threads > 4096) return 2;
    if ((kind == DOT16 || kind == DOT8) && amount() == 0) return 2; /* no such instructions */
    if (kind == TRIAD) elements = atol(arguments[4]) / (long)sizeof(double) / threads / SECTIONS;
    if (kind == TRIAD && elements < 1) return 2;
    first = calloc((size_t)threads, sizeof *first), last = calloc((size_t)threads, sizeof *last);
    pthread_t *found = calloc((size_t)threads, sizeof *found);
    if (!first || !last || !found) return 3;
    for (long i = 0; i < threads; i++)
        if (pthread_create(&found[i], 0, work, (void *)i)) return 3;
    for (long i = 0; i < threads; i++) pthread_join(found[i], 0);
    if (failed) return 4;
    printf("{\"work\": %.17g, \"best\": %.9g, \"total\": %.9g, \"rounds\": %ld, "
           "\"width\": %d, \"fused\": %s, \"dot16\": %s, \"dot8\": %s}\n",
           amount(), best, total, rounds, 8 * WIDTH, FUSED ? "true" : "false",
           BF16 > 0 ? "true" : "false", INT8 > 0 ? "true" : "false");
    return 0;
}
