#include "observation/occupancy.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/index.hpp"

namespace gpuyard {

namespace {

constexpr std::int64_t kCpuClasses = 8;  // of free CPUs, and one more for a node that is all free

double left_share(Time end_us, Time now_us, double horizon_s) {
    return std::min(std::max(seconds(end_us - now_us) / horizon_s, 0.0), 1.0);
}

std::size_t rows_of_pool(const Pool& pool) { return as_index(pool.size > 0 ? pool.size : kCpuClasses) + 1; }

double use(std::int64_t free, std::int64_t all) {
    return all == 0 ? 0.0 : 1.0 - static_cast<double>(free) / static_cast<double>(all);
}

}  // namespace

std::size_t Occupancy::rows_for(const ClusterSpec& spec, Tokens tokens) {
    if (tokens == Tokens::nodes) return spec.node_count();
    std::size_t rows = 0;
    for (const Pool& pool : spec.pools) rows += rows_of_pool(pool);
    return rows;
}

void Occupancy::reset(const ClusterState& state, const ClusterScale& scale) {
    state_ = &state;
    scale_ = &scale;
    const ClusterSpec& spec = state.spec();
    const std::size_t nodes = spec.node_count();
    row_count_ = rows_for(spec, tokens_);
    table_.assign(row_count_ * kNodeColumnCount, 0.0F);
    first_seat_.assign(nodes, kNone);
    earliest_.assign(nodes, kNoJob);
    seats_.clear();
    gpu_end_.assign(spec.track_gpus ? spec.total_gpus : 0, kNoJob);
    releases_.clear();
    held_gpus_ = 0;
    count_samples();
    pool_free_cpus_.assign(spec.pools.size(), 0);
    node_free_cpus_.assign(nodes, 0);
    node_free_milli_.assign(nodes, 0);
    node_free_memory_.assign(nodes, 0);
    row_of_.resize(nodes);
    classes_.clear();
    pool_offset_.clear();
    leaves_.clear();
    std::size_t tournament = 0;
    for (std::size_t p = 0; p < spec.pools.size() && tokens_ == Tokens::classes; ++p) {
        const Pool& pool = spec.pools[p];
        pool_offset_.push_back(classes_.size());
        leaves_.push_back(std::bit_ceil(std::max<std::size_t>(pool.nodes.size(), 1)));
        for (std::size_t k = 0; k < rows_of_pool(pool); ++k) {
            ClassSums sums;
            sums.pool = static_cast<std::int32_t>(p);
            sums.tree = tournament;
            tournament += 2 * leaves_.back();
            classes_.push_back(sums);
        }
    }
    tournament_.assign(tournament, kNoJob);
    pool_cpus_.assign(spec.pools.size(), 0);
    for (std::size_t i = 0; i < nodes; ++i) {
        const auto node = static_cast<std::int32_t>(i);
        if (spec.cpus[i] != kUnlimited) pool_cpus_[as_index(spec.pool[i])] += spec.cpus[i];
        node_free_cpus_[i] = state.free_cpus(node);
        node_free_milli_[i] = state.free_milli(node);
        node_free_memory_[i] = state.free_memory(node);
        if (spec.cpus[i] != kUnlimited) pool_free_cpus_[as_index(spec.pool[i])] += node_free_cpus_[i];
        row_of_[i] = i;
        if (tokens_ == Tokens::classes) {
            row_of_[i] = pool_offset_[as_index(spec.pool[i])] + as_index(class_of(node));
            change_class_sums(node, row_of_[i], +1);
        } else {
            write_row(i, sums_of_node(node));
        }
    }
    for (std::size_t row = 0; row < classes_.size(); ++row) write_row(row, classes_[row]);
}

void Occupancy::count_samples() {
    const std::size_t gpus = state_->spec().total_gpus;
    if (samples_before_.size() == gpus + 1) return;
    samples_before_.assign(gpus + 1, 0);
    const std::size_t samples = std::min(gpus, kMostSamples);
    for (std::size_t j = 0; j < samples; ++j)
        ++samples_before_[as_index(sampled_gpu(static_cast<std::int64_t>(j))) + 1];
    for (std::size_t gpu = 0; gpu < gpus; ++gpu)
        samples_before_[gpu + 1] = static_cast<std::uint8_t>(samples_before_[gpu + 1] + samples_before_[gpu]);
}

std::int32_t Occupancy::class_of(std::int32_t node) const {
    const ClusterSpec& spec = state_->spec();
    if (spec.size[as_index(node)] > 0) return state_->empty(node);
    const std::int64_t cpus = spec.cpus[as_index(node)];
    if (cpus == kUnlimited || cpus == 0) return 0;
    return static_cast<std::int32_t>(kCpuClasses * state_->free_cpus(node) / cpus);
}

void Occupancy::change_class_sums(std::int32_t node, std::size_t row, std::int64_t sign) {
    const ClusterSpec& spec = state_->spec();
    const std::size_t i = as_index(node);
    ClassSums& sums = classes_[row];
    sums.members += sign;
    sums.gpus += sign * spec.size[i];
    sums.free_milli += sign * node_free_milli_[i];
    if (spec.cpus[i] != kUnlimited) {
        sums.cpus += sign * spec.cpus[i];
        sums.free_cpus += sign * node_free_cpus_[i];
    }
    if (spec.memory_mib[i] != kUnlimited) {
        sums.memory += sign * spec.memory_mib[i];
        sums.free_memory += sign * node_free_memory_[i];
    }
}

Occupancy::ClassSums Occupancy::sums_of_node(std::int32_t node) const {
    const ClusterSpec& spec = state_->spec();
    const std::size_t i = as_index(node);
    ClassSums sums;
    sums.pool = spec.pool[i];
    sums.members = 1;
    sums.gpus = spec.size[i];
    sums.free_milli = state_->free_milli(node);
    if (spec.cpus[i] != kUnlimited) {
        sums.cpus = spec.cpus[i];
        sums.free_cpus = state_->free_cpus(node);
    }
    if (spec.memory_mib[i] != kUnlimited) {
        sums.memory = spec.memory_mib[i];
        sums.free_memory = state_->free_memory(node);
    }
    return sums;
}

// The columns that change with what is free.
void Occupancy::write_use(float* row, const ClassSums& sums) {
    row[2] = static_cast<float>(use(sums.free_milli, 1000 * sums.gpus));
    row[3] = static_cast<float>(use(sums.free_cpus, sums.cpus));
    row[4] = static_cast<float>(use(sums.free_memory, sums.memory));
}

void Occupancy::write_row(std::size_t row, const ClassSums& sums) {
    float* out = table_.data() + row * kNodeColumnCount;
    if (sums.members == 0) {
        std::fill_n(out, kNodeColumnCount, 0.0F);
        return;
    }
    const Pool& pool = state_->spec().pools[as_index(sums.pool)];
    const auto members = static_cast<double>(sums.members);
    write_use(out, sums);
    *out++ = 1.0F;
    *out++ = static_cast<float>(members / scale_->nodes);
    out += 3;
    *out++ = static_cast<float>(quotient(static_cast<double>(pool.size), scale_->largest_size));
    *out++ = static_cast<float>(quotient(static_cast<double>(sums.cpus), members * scale_->most_cpus));
    *out++ = static_cast<float>(quotient(static_cast<double>(sums.memory), members * scale_->most_memory));
    *out = static_cast<float>(pool.speed / scale_->top_speed);
}

// Brings everything that depends on a node up to date.
void Occupancy::refresh(std::int32_t node) {
    const std::size_t i = as_index(node);
    const ClusterSpec& spec = state_->spec();
    Time earliest = kNoJob;
    for (std::int32_t seat = first_seat_[i]; seat != kNone; seat = seats_[as_index(seat)].next)
        earliest = std::min(earliest, seats_[as_index(seat)].end_us);
    earliest_[i] = earliest;
    if (spec.cpus[i] != kUnlimited)
        pool_free_cpus_[as_index(spec.pool[i])] += state_->free_cpus(node) - node_free_cpus_[i];
    if (tokens_ == Tokens::nodes) {
        node_free_cpus_[i] = state_->free_cpus(node);
        write_use(table_.data() + i * kNodeColumnCount, sums_of_node(node));
        return;
    }
    const std::size_t before = row_of_[i];
    const std::size_t after = pool_offset_[as_index(spec.pool[i])] + as_index(class_of(node));
    change_class_sums(node, before, -1);
    node_free_cpus_[i] = state_->free_cpus(node);
    node_free_milli_[i] = state_->free_milli(node);
    node_free_memory_[i] = state_->free_memory(node);
    change_class_sums(node, after, +1);
    row_of_[i] = after;
    write_row(after, classes_[after]);
    if (before != after) {
        write_row(before, classes_[before]);
        set_leaf(before, node, kNoJob);
    }
    set_leaf(after, node, earliest);
}

void Occupancy::set_leaf(std::size_t row, std::int32_t node, Time end_us) {
    const ClusterSpec& spec = state_->spec();
    Time* tree = tournament_.data() + classes_[row].tree;
    std::size_t at = leaves_[as_index(classes_[row].pool)] + as_index(spec.position[as_index(node)]);
    tree[at] = end_us;
    while (at > 1) {
        at /= 2;
        const Time earliest = std::min(tree[2 * at], tree[2 * at + 1]);
        if (tree[at] == earliest) break;
        tree[at] = earliest;
    }
}

void Occupancy::started(JobId job, const Demand& demand, std::span<const Part> parts, std::size_t first_part,
                        Time expected_end_us) {
    const Time end = expected_end_us == kEndless ? kUnknownEnd : expected_end_us;
    if (seats_.size() < first_part + parts.size()) seats_.resize(first_part + parts.size());
    for (std::size_t k = 0; k < parts.size(); ++k) {
        const auto seat = static_cast<std::int32_t>(first_part + k);
        std::int32_t& first = first_seat_[as_index(parts[k].node)];
        seats_[as_index(seat)] = {kNone, first, end, parts[k].gpu_mask};
        if (first != kNone) seats_[as_index(first)].previous = seat;
        first = seat;
        refresh(parts[k].node);
        if (!gpu_end_.empty()) update_gpus(parts[k].node, parts[k].gpu_mask);
    }
    if (demand.kind != DemandKind::whole) return;
    releases_.insert({end, static_cast<std::int32_t>(job), demand.gpus});
    held_gpus_ += demand.gpus;
}

void Occupancy::finished(JobId job, const Demand& demand, std::span<const Part> parts, std::size_t first_part,
                         Time expected_end_us) {
    const Time end = expected_end_us == kEndless ? kUnknownEnd : expected_end_us;
    for (std::size_t k = 0; k < parts.size(); ++k) {
        const Seat gone = seats_[first_part + k];
        if (gone.next != kNone) seats_[as_index(gone.next)].previous = gone.previous;
        if (gone.previous != kNone)
            seats_[as_index(gone.previous)].next = gone.next;
        else
            first_seat_[as_index(parts[k].node)] = gone.next;
        refresh(parts[k].node);
        if (!gpu_end_.empty()) update_gpus(parts[k].node, parts[k].gpu_mask);
    }
    if (demand.kind != DemandKind::whole) return;
    releases_.erase({end, static_cast<std::int32_t>(job), demand.gpus});
    held_gpus_ -= demand.gpus;
}

// Until when the GPUs of the mask are held: by the latest of those that share them.
void Occupancy::update_gpus(std::int32_t node, std::uint64_t gpu_mask) {
    Time* ends = gpu_end_.data() + state_->spec().first_gpu[as_index(node)];
    for (std::uint64_t rest = gpu_mask; rest != 0; rest &= rest - 1) {
        const auto gpu = as_index(std::countr_zero(rest));
        Time latest = kNoJob;
        for (std::int32_t seat = first_seat_[as_index(node)]; seat != kNone; seat = seats_[as_index(seat)].next) {
            if ((seats_[as_index(seat)].gpu_mask >> gpu & 1) == 0) continue;
            latest = latest == kNoJob ? seats_[as_index(seat)].end_us : std::max(latest, seats_[as_index(seat)].end_us);
        }
        ends[gpu] = latest;
    }
}

double Occupancy::free_cpu_share(std::size_t pool) const {
    return quotient(static_cast<double>(pool_free_cpus_[pool]), static_cast<double>(pool_cpus_[pool]));
}

void Occupancy::write_release(Time now_us, double horizon_s, float* out, std::size_t stride) const {
    for (std::size_t row = 0; row < row_count_; ++row, out += stride) {
        const Time end = tokens_ == Tokens::nodes ? earliest_[row] : earliest_of_class(row);
        *out = end == kNoJob        ? 0.0F
               : end == kUnknownEnd ? 1.0F
                                    : static_cast<float>(left_share(end, now_us, horizon_s));
    }
}

void Occupancy::write_lookahead(Time now_us, double horizon_s, float* out, std::size_t length) {
    std::fill_n(out, length, 0.0F);
    if (lookahead_ == Lookahead::off || state_->spec().total_gpus == 0) return;
    if (!gpu_end_.empty()) return write_by_gpu(now_us, horizon_s, out, length);
    if (lookahead_ == Lookahead::sorted)
        write_sorted(now_us, horizon_s, out, length);
    else
        write_cdf(now_us, horizon_s, out, length);
}

void Occupancy::write_by_gpu(Time now_us, double horizon_s, float* out, std::size_t length) {
    const std::size_t gpus = gpu_end_.size();
    remaining_.resize(gpus);
    const auto rem = [&](Time end) {
        return end == kNoJob ? 0.0 : end == kUnknownEnd ? 1.0 : left_share(end, now_us, horizon_s);
    };
    if (lookahead_ == Lookahead::cdf) {
        for (std::size_t j = 0; j < length; ++j) {
            const double limit = static_cast<double>(j + 1) / static_cast<double>(length);
            const auto below =
                std::count_if(gpu_end_.begin(), gpu_end_.end(), [&](Time end) { return rem(end) <= limit; });
            out[j] = static_cast<float>(static_cast<double>(below) / static_cast<double>(gpus));
        }
        return;
    }
    std::transform(gpu_end_.begin(), gpu_end_.end(), remaining_.begin(),
                   [&](Time end) { return static_cast<float>(rem(end)); });
    if (lookahead_ == Lookahead::sorted) std::sort(remaining_.begin(), remaining_.end());
    for (std::size_t j = 0; j < std::min(length, gpus); ++j)
        out[j] = remaining_[as_index(sampled_gpu(static_cast<std::int64_t>(j)))];
}

// Which GPU, in the mode's order, number j of the lookahead is about.
std::int64_t Occupancy::sampled_gpu(std::int64_t j) const {
    const auto gpus = static_cast<std::int64_t>(state_->spec().total_gpus);
    return gpus <= static_cast<std::int64_t>(kMostSamples) ? j : (2 * j + 1) * gpus / 128;
}

void Occupancy::write_sorted(Time now_us, double horizon_s, float* out, std::size_t length) const {
    const std::size_t places = std::min(length, samples_before_.size() - 1);
    // The entry that holds sample j, for the first j of every entry that holds any. Without branches that depend on the
    // jobs: the processor could not foresee them. Of entries that begin before the same sample the last one holds it.
    std::array<const Release*, kMostSamples + 1> holder{};
    auto passed = as_index(static_cast<std::int64_t>(samples_before_.size()) - 1 - held_gpus_);  // the idle GPUs
    const std::size_t first = samples_before_[passed];
    for (std::size_t block = 0; block < releases_.block_count(); ++block) {
        const auto& entries = releases_.block(block);
        const std::size_t after = passed + as_index(entries.weight);
        if (samples_before_[after] == samples_before_[passed]) {
            passed = after;
            continue;
        }
        for (const Release& entry : entries) {
            holder[samples_before_[passed]] = &entry;
            passed += as_index(entry.gpus);
        }
    }
    const Release* current = nullptr;
    for (std::size_t j = first; j < places; ++j) {
        current = holder[j] != nullptr ? holder[j] : current;
        out[j] =
            current->end_us == kUnknownEnd ? 1.0F : static_cast<float>(left_share(current->end_us, now_us, horizon_s));
    }
}

void Occupancy::write_cdf(Time now_us, double horizon_s, float* out, std::size_t length) const {
    const auto gpus = static_cast<double>(state_->spec().total_gpus);
    const auto rem = [&](const Release& r) {
        return r.end_us == kUnknownEnd ? 1.0 : left_share(r.end_us, now_us, horizon_s);
    };
    std::int64_t below = static_cast<std::int64_t>(state_->spec().total_gpus) - held_gpus_;
    std::size_t block = 0, at = 0;
    for (std::size_t j = 0; j < length; ++j) {
        const double limit = static_cast<double>(j + 1) / static_cast<double>(length);
        while (block < releases_.block_count()) {
            const auto& entries = releases_.block(block);
            if (at == 0 && rem(entries.back()) <= limit) {
                below += entries.weight;
                ++block;
                continue;
            }
            while (at < entries.count && rem(entries.entries[at]) <= limit) below += entries.entries[at++].gpus;
            if (at < entries.count) break;
            ++block;
            at = 0;
        }
        out[j] = static_cast<float>(static_cast<double>(below) / gpus);
    }
}

}  // namespace gpuyard
