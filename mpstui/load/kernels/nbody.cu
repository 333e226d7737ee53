// All pairs n-body, tiled through shared memory: figure interactions/s. Bound by arithmetic (FMA and reciprocal square root).
//
// accelerate: accelerations of `count` bodies from number `first` on (wrapping at n), each from all n bodies.
//   A launch covers as many blocks as the share has room for, so that it takes the same few milliseconds on 8 SMs as on 132.
//   n is a multiple of TILE; `bodies` is x, y, z, mass; softening avoids the self-interaction's division by zero.
// advance: one leapfrog step of all bodies once every acceleration is there.

#define TILE 128

extern "C" __global__ void __launch_bounds__(TILE)
    accelerate(const float4 *__restrict__ bodies, float4 *__restrict__ accelerations, int n, int first, int count) {
    __shared__ float4 tile[TILE];
    const int offset = blockIdx.x * TILE + threadIdx.x;
    int me = first + offset;
    if (me >= n) {
        me -= n;
    }
    const float4 own = bodies[me];
    const float softening = 1e-4f;
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int base = 0; base < n; base += TILE) {
        tile[threadIdx.x] = bodies[base + threadIdx.x];
        __syncthreads();
#pragma unroll 32
        for (int j = 0; j < TILE; j++) {
            const float4 other = tile[j];
            const float dx = other.x - own.x;
            const float dy = other.y - own.y;
            const float dz = other.z - own.z;
            const float squared = dx * dx + dy * dy + dz * dz + softening;
            const float inverse = rsqrtf(squared);
            const float pull = other.w * inverse * inverse * inverse;
            ax += pull * dx;
            ay += pull * dy;
            az += pull * dz;
        }
        __syncthreads();
    }
    if (offset < count) {
        accelerations[me] = make_float4(ax, ay, az, 0.0f);
    }
}

extern "C" __global__ void __launch_bounds__(TILE)
    advance(float4 *__restrict__ bodies, float4 *__restrict__ velocities, const float4 *__restrict__ accelerations, int n,
            float step) {
    const int me = blockIdx.x * TILE + threadIdx.x;
    if (me >= n) {
        return;
    }
    float4 velocity = velocities[me];
    const float4 pull = accelerations[me];
    velocity.x += pull.x * step;
    velocity.y += pull.y * step;
    velocity.z += pull.z * step;
    velocities[me] = velocity;
    float4 own = bodies[me];
    own.x += velocity.x * step;
    own.y += velocity.y * step;
    own.z += velocity.z * step;
    bodies[me] = own;
}
