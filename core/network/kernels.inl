// The kernels, over the `Lanes` of the namespace that includes this file. KERNEL is what its functions are declared
// with.

#define UNROLLED _Pragma("GCC unroll 8")  // or the sums would go through memory

template <int R>
KERNEL void dense_block(const float* x, std::size_t stride, const float* panel, std::size_t inputs, const float* start,
                        float* out, std::size_t out_stride, Finish finish) {
    Lanes sum[R];
    const Lanes first = load(start);
    UNROLLED for (int r = 0; r < R; ++r) sum[r] = first;
    for (std::size_t k = 0; k < inputs; ++k) {
        const Lanes weights = load(panel + k * kLanes);
        UNROLLED for (int r = 0; r < R; ++r) sum[r] =
            fused(broadcast(x[static_cast<std::size_t>(r) * stride + k]), weights, sum[r]);
    }
    UNROLLED for (int r = 0; r < R; ++r) {
        float* const to = out + static_cast<std::size_t>(r) * out_stride;
        if (finish == Finish::relu) sum[r] = largest(sum[r], broadcast(0.0F));
        if (finish == Finish::add) sum[r] = plus(load(to), sum[r]);
        store(to, sum[r]);
    }
}

KERNEL void dense_rest(const Rows& x, std::size_t row, const float* panel, std::size_t inputs, const float* start,
                       float* out, std::size_t out_stride, Finish finish) {
    const float* const from = x.data + row * x.stride;
    float* const to = out + row * out_stride;
    switch (x.count - row) {
        case 5: return dense_block<5>(from, x.stride, panel, inputs, start, to, out_stride, finish);
        case 4: return dense_block<4>(from, x.stride, panel, inputs, start, to, out_stride, finish);
        case 3: return dense_block<3>(from, x.stride, panel, inputs, start, to, out_stride, finish);
        case 2: return dense_block<2>(from, x.stride, panel, inputs, start, to, out_stride, finish);
        case 1: return dense_block<1>(from, x.stride, panel, inputs, start, to, out_stride, finish);
        default: return;
    }
}

KERNEL void dense(const Rows& x, const PackedLayer& layer, const float* start, float* out, std::size_t out_stride,
                  Finish finish) {
    constexpr std::size_t kBlock = 6;
    for (std::size_t column = 0; column < layer.padded_outputs; column += kLanes) {
        const float* const panel = layer.panels + column * layer.inputs;
        std::size_t row = 0;
        for (; row + kBlock <= x.count; row += kBlock)
            dense_block<kBlock>(x.data + row * x.stride, x.stride, panel, layer.inputs, start + column,
                                out + row * out_stride + column, out_stride, finish);
        dense_rest(x, row, panel, layer.inputs, start + column, out + column, out_stride, finish);
    }
}

template <int P>
KERNEL void dense_one_block(const SparseVector& x, const float* panels, std::size_t inputs, const float* start,
                            float* out, Finish finish) {
    Lanes sum[P];
    UNROLLED for (int p = 0; p < P; ++p) sum[p] = load(start + static_cast<std::size_t>(p) * kLanes);
    for (std::size_t i = 0; i < x.count; ++i) {
        const Lanes value = broadcast(x.values[i]);
        const float* const weights = panels + std::size_t{x.places[i]} * kLanes;
        UNROLLED for (int p = 0; p < P; ++p) sum[p] =
            fused(value, load(weights + static_cast<std::size_t>(p) * inputs * kLanes), sum[p]);
    }
    UNROLLED for (int p = 0; p < P; ++p) {
        float* const to = out + static_cast<std::size_t>(p) * kLanes;
        if (finish == Finish::relu) sum[p] = largest(sum[p], broadcast(0.0F));
        if (finish == Finish::add) sum[p] = plus(load(to), sum[p]);
        store(to, sum[p]);
    }
}

KERNEL void dense_one(const SparseVector& x, const PackedLayer& layer, const float* start, float* out, Finish finish) {
    constexpr std::size_t kBlock = 4 * kLanes;
    std::size_t column = 0;
    for (; column + kBlock <= layer.padded_outputs; column += kBlock)
        dense_one_block<4>(x, layer.panels + column * layer.inputs, layer.inputs, start + column, out + column, finish);
    for (; column < layer.padded_outputs; column += kLanes)
        dense_one_block<1>(x, layer.panels + column * layer.inputs, layer.inputs, start + column, out + column, finish);
}

KERNEL void dots(const Rows& x, std::size_t width, const float* weights, float bias, float* out,
                 std::size_t out_stride) {
    for (std::size_t row = 0; row < x.count; ++row) {
        const float* const from = x.data + row * x.stride;
        Lanes sum = broadcast(0.0F);
        for (std::size_t k = 0; k < width; k += kLanes) sum = fused(load(from + k), load(weights + k), sum);
        out[row * out_stride] = total(sum) + bias;
    }
}

KERNEL void pool_rows(const Rows& x, std::size_t width, float* sum, float* maximum) {
    for (std::size_t column = 0; column < width; column += kLanes) {
        Lanes all = broadcast(0.0F), most = broadcast(0.0F);
        for (std::size_t row = 0; row < x.count; ++row) {
            const Lanes values = load(x.data + row * x.stride + column);
            all = plus(all, values);
            most = largest(values, most);
        }
        store(sum + column, all);
        if (maximum != nullptr) store(maximum + column, most);
    }
}

KERNEL void normalise(const Rows& x, std::size_t width, const float* weight, const float* bias, const float* add,
                      float* out) {
    const auto divisor = static_cast<float>(width);
    const std::size_t whole = width / kLanes * kLanes;
    float mask[kLanes] = {};
    for (std::size_t i = whole; i < width; ++i) mask[i - whole] = 1.0F;
    for (std::size_t row = 0; row < x.count; ++row) {
        const float* const from = x.data + row * x.stride;
        float* const to = out + row * x.stride;
        Lanes sum = broadcast(0.0F), squares = broadcast(0.0F);
        for (std::size_t k = 0; k < width; k += kLanes) sum = plus(sum, load(from + k));
        const Lanes mean = broadcast(total(sum) / divisor);
        for (std::size_t k = 0; k < width; k += kLanes) {
            Lanes away = minus(load(from + k), mean);
            if (k >= whole) away = times(away, load(mask));
            squares = fused(away, away, squares);
        }
        const Lanes scale = broadcast(1.0F / square_root(total(squares) / divisor + 1e-5F));
        for (std::size_t k = 0; k < width; k += kLanes) {
            Lanes value = fused(times(minus(load(from + k), mean), scale), load(weight + k), load(bias + k));
            if (add != nullptr) value = plus(value, load(add + k));
            store(to + k, value);
        }
    }
}

// exp(x) = 2^n exp(r) with |r| <= ln(2)/2, and exp(r) by its Taylor series: the first term left out is below 6e-9.
KERNEL Lanes exponential(Lanes x) {
    constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: what is added to it is rounded to a whole number
    x = largest(x, broadcast(-87.0F));
    const Lanes rounded = fused(x, broadcast(1.44269504F), broadcast(kRounder));
    const Lanes n = minus(rounded, broadcast(kRounder));
    Lanes r =
        fused(n, broadcast(-0.693359375F), x);  // ln 2 in two parts, the first short enough for n times it to be exact
    r = fused(n, broadcast(2.12194440e-4F), r);
    Lanes sum = broadcast(1.0F / 5040.0F);
    for (const float coefficient : {1.0F / 720.0F, 1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F, 1.0F})
        sum = fused(sum, r, broadcast(coefficient));
    return scaled_by_power(sum, rounded);
}

KERNEL void exp_negative(float* x, std::size_t count) {
    for (std::size_t i = 0; i < count; i += kLanes) store(x + i, exponential(load(x + i)));
}

KERNEL void softmax(float* x, std::size_t count) {
    const std::size_t all = padded(count);
    for (std::size_t i = count; i < all; ++i) x[i] = -1e30F;
    Lanes most = load(x), sum = broadcast(0.0F);
    for (std::size_t i = kLanes; i < all; i += kLanes) most = largest(load(x + i), most);
    const Lanes shift = broadcast(maximum_of(most));
    for (std::size_t i = 0; i < all; i += kLanes) {
        const Lanes value = exponential(minus(load(x + i), shift));
        sum = plus(sum, value);
        store(x + i, value);
    }
    const Lanes scale = broadcast(1.0F / total(sum));
    for (std::size_t i = 0; i < all; i += kLanes) store(x + i, times(load(x + i), scale));
}

// The scores of one query, four lanes of keys at a time where there are as many.
KERNEL void key_scores(const float* query, std::size_t columns, const float* keys, std::size_t key_stride,
                       std::size_t all, float* scores) {
    std::size_t i = 0;
    for (; i + 4 * kLanes <= all; i += 4 * kLanes) {
        Lanes sum[4] = {broadcast(0.0F), broadcast(0.0F), broadcast(0.0F), broadcast(0.0F)};
        for (std::size_t c = 0; c < columns; ++c)
            UNROLLED for (std::size_t p = 0; p < 4; ++p) sum[p] =
                fused(broadcast(query[c]), load(keys + c * key_stride + i + p * kLanes), sum[p]);
        UNROLLED for (std::size_t p = 0; p < 4; ++p) store(scores + i + p * kLanes, sum[p]);
    }
    for (; i < all; i += kLanes) {
        Lanes sum = broadcast(0.0F);
        for (std::size_t c = 0; c < columns; ++c)
            sum = fused(broadcast(query[c]), load(keys + c * key_stride + i), sum);
        store(scores + i, sum);
    }
}

KERNEL void attend(const Rows& queries, std::size_t heads, std::size_t columns, const float* keys,
                   std::size_t key_count, std::size_t key_stride, float* scratch, float* out, std::size_t out_stride) {
    const std::size_t all = padded(key_count);
    for (std::size_t row = 0; row < queries.count; ++row)
        for (std::size_t head = 0; head < heads; ++head) {
            key_scores(queries.data + row * queries.stride + head * columns, columns, keys, key_stride, all, scratch);
            softmax(scratch, key_count);
            float* const to = out + row * out_stride + head * columns;
            for (std::size_t c = 0; c < columns; ++c) {
                Lanes sum = broadcast(0.0F);
                for (std::size_t i = 0; i < all; i += kLanes)
                    sum = fused(load(scratch + i), load(keys + c * key_stride + i), sum);
                to[c] = total(sum);
            }
        }
}

KERNEL void weighted_sum(const Rows& x, std::size_t width, const float* weights, float* out) {
    for (std::size_t column = 0; column < width; column += kLanes) {
        Lanes sum = broadcast(0.0F);
        for (std::size_t row = 0; row < x.count; ++row)
            sum = fused(broadcast(weights[row]), load(x.data + row * x.stride + column), sum);
        store(out + column, sum);
    }
}

#undef UNROLLED
