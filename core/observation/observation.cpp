#include "observation/observation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/index.hpp"

namespace gpuyard {

namespace {

enum JobColumn : std::size_t {
    kWait = 1,
    kSlowdown = 10,
    kDeadline = 11,
    kFits = 12,
    kFreeAfter = 13,
    kFragmentation = 15,
    kUserShare = 16,
    kGroupShare = 17,
    kBeforeShadow = 18,
    kBaseChoice = 19,
    kSpeed = 20,
    kStartsIn = 21,
    kHoldsUp = 22,
};
constexpr std::size_t kRelease = 9, kNodeBaseChoice = 10;
constexpr double kTwoPi = 6.283185307179586;
constexpr Time kDay = 86'400'000'000;
constexpr double kMonth = 2592000.0, kTenHours = 36000.0;  // seconds

float flag(bool value) { return value ? 1.0F : 0.0F; }

// Columns of whole rows, picked by number.
void pick(const float* from, std::size_t rows, std::size_t width, const std::vector<std::size_t>& columns, float* to) {
    for (std::size_t row = 0; row < rows; ++row, from += width)
        for (const std::size_t column : columns) *to++ = from[column];
}

std::size_t width(const EnvSpec::Chosen& columns, std::size_t all) { return columns ? columns->size() : all; }

void fill_row(const Scene& scene, std::size_t i, float* row) {
    const WindowJob& job = *scene.rows[i];
    const Fit& fit = scene.prospects.fit(i);
    const double wait = seconds(scene.now_us - job.submit_us);
    std::memcpy(row, job.columns.data(), sizeof job.columns);
    row[kWait] = static_cast<float>(wait / (wait + 3600.0));
    if (job.knows_estimate()) {
        const double bounded = std::max(1.0, (wait + job.estimate_s) / job.bound_s);
        row[kSlowdown] = static_cast<float>(1.0 - 1.0 / bounded);
    }
    if (job.deadline_us != kEndless) {
        const double slack = seconds(job.deadline_us - scene.now_us) - job.estimate_s;
        row[kDeadline] = static_cast<float>(0.5 * (1.0 + slack / (3600.0 + std::abs(slack))));
    }
    row[kFits] = flag(fit.fits);
    row[kFreeAfter] = fit.free_after;
    row[kFragmentation] = fit.fragmentation;
    row[kUserShare] = scene.user_share[as_index(job.user)];
    row[kGroupShare] = scene.group_share[as_index(job.group)];
    row[kBeforeShadow] = flag(scene.prospects.before_shadow(i));
    row[kSpeed] = fit.speed;
}

// Columns about when a job could start, which take longer to find out.
void fill_asked(const Scene& scene, std::size_t i, float* row) {
    const WindowJob& job = *scene.rows[i];
    const Time start = scene.prospects.starts_at(i);
    if (start == kEndless) {
        row[kStartsIn] = row[kHoldsUp] = 1.0F;
        return;
    }
    const double gap = seconds(std::max(start - scene.now_us, Time{0}));
    row[kStartsIn] = static_cast<float>(std::min(std::log(1.0 + gap) / std::log(1.0 + kMonth), 1.0));
    const ClusterSpec& spec = scene.state.spec();
    const auto gpus = static_cast<double>(spec.total_gpus);
    const double size = scene.prospects.size_gpus(i);
    row[kHoldsUp] = static_cast<float>(
        job.knows_estimate()
            ? std::min(quotient(std::log(1.0 + job.estimate_s * size + gap * gpus), std::log(1.0 + kMonth * gpus)), 1.0)
            : 1.0);
}

}  // namespace

Observer::Observer(const EnvSpec& spec)
    : spec_(spec),
      job_width_(width(spec.job_columns, kJobColumnCount)),
      node_width_(width(spec.node_columns, kNodeColumnCount)),
      global_width_(width(spec.global_columns, global_length(spec.sizes))),
      row_width_(kJobColumnCount + (spec.asks_for_starts() ? kAskedJobColumnCount : 0)) {
    if (spec.job_columns) job_scratch_.resize(spec.sizes.rows * row_width_);
    const auto place_of = [&](std::size_t column) {
        if (!spec.node_columns) return column;
        const auto found = std::find(spec.node_columns->begin(), spec.node_columns->end(), column);
        return found == spec.node_columns->end() ? kLeftOut : as_index(found - spec.node_columns->begin());
    };
    release_at_ = place_of(kRelease);
    base_choice_at_ = place_of(kNodeBaseChoice);
    if (spec.global_columns) global_scratch_.resize(global_length(spec.sizes) + kAskedGlobalColumns.size());
}

void Observer::write(const Scene& scene, const ObservationBuffers& out) {
    const auto picked = [](std::vector<float>& scratch, float* to) { return scratch.empty() ? to : scratch.data(); };
    write_jobs(scene, picked(job_scratch_, out.jobs));
    if (out.nodes != nullptr) write_nodes(scene, out.nodes);
    write_globals(scene, picked(global_scratch_, out.globals));
    if (!job_scratch_.empty()) pick(job_scratch_.data(), spec_.sizes.rows, row_width_, *spec_.job_columns, out.jobs);
    if (!global_scratch_.empty())
        pick(global_scratch_.data(), 1, global_length(spec_.sizes), *spec_.global_columns, out.globals);
}

void Observer::write_jobs(const Scene& scene, float* out) {
    for (std::size_t i = 0; i < scene.rows.size(); ++i) fill_row(scene, i, out + i * row_width_);
    if (spec_.asks_for_starts())
        for (std::size_t i = 0; i < scene.rows.size(); ++i) fill_asked(scene, i, out + i * row_width_);
    const std::int32_t choice = scene.prospects.base_choice();
    if (choice >= 0) out[as_index(choice) * row_width_ + kBaseChoice] = 1.0F;
    std::fill(out + scene.rows.size() * row_width_, out + spec_.sizes.rows * row_width_, 0.0F);
}

void Observer::write_nodes(const Scene& scene, float* out) {
    const std::span<const float> rows = scene.occupancy.rows();
    const std::size_t count = scene.occupancy.row_count();
    if (spec_.node_columns)
        pick(rows.data(), count, kNodeColumnCount, *spec_.node_columns, out);
    else
        std::copy(rows.begin(), rows.end(), out);
    std::fill(out + count * node_width_, out + spec_.sizes.tokens * node_width_, 0.0F);
    if (release_at_ != kLeftOut)
        scene.occupancy.write_release(scene.now_us, seconds(spec_.lookahead_horizon_us), out + release_at_,
                                      node_width_);
    if (scene.base_allocation == nullptr || base_choice_at_ == kLeftOut) return;
    for (const Part& part : scene.base_allocation->parts)
        out[scene.occupancy.row_of(part.node) * node_width_ + base_choice_at_] = 1.0F;
}

void Observer::write_globals(const Scene& scene, float* out) {
    const ClusterSpec& spec = scene.state.spec();
    const auto gpus = static_cast<double>(spec.total_gpus);
    std::fill_n(out, 2 * spec_.sizes.pools, 0.0F);
    std::int64_t free_milli = 0, empty = 0;
    for (std::size_t p = 0; p < spec.pools.size(); ++p) {
        const Pool& pool = spec.pools[p];
        const auto id = static_cast<std::int32_t>(p);
        const std::int64_t milli = scene.state.pool_free_milli(id);
        const auto all = static_cast<double>(static_cast<std::int64_t>(pool.nodes.size()) * pool.size);
        out[p] = static_cast<float>(pool.size > 0 ? (static_cast<double>(milli) / 1000.0) / all
                                                  : scene.occupancy.free_cpu_share(p));
        free_milli += milli;
        empty += scene.state.pool_empty(id);
    }
    out += spec_.sizes.pools;
    if (scene.base_allocation != nullptr)
        for (const Part& part : scene.base_allocation->parts) out[as_index(spec.pool[as_index(part.node)])] = 1.0F;
    out += spec_.sizes.pools;
    const auto put = [&](double value) { *out++ = static_cast<float>(value); };
    const auto queue = static_cast<double>(scene.waiting);
    const double demand = static_cast<double>(scene.waiting_milli) / 1000.0;
    const double horizon_s = seconds(spec_.lookahead_horizon_us);
    Time shadow = 0;
    const bool has_head = scene.prospects.shadow(shadow);
    put(queue / (queue + 64.0));
    put(quotient(queue - static_cast<double>(scene.rows.size()), queue));
    put(gpus == 0.0 ? 0.0 : demand / (demand + gpus));
    put(scene.arrivals / (scene.arrivals + 60.0));
    put(static_cast<double>(scene.running) / (static_cast<double>(scene.running) + 64.0));
    put(quotient(gpus - static_cast<double>(free_milli) / 1000.0, gpus));
    put(quotient(static_cast<double>(fragmented_gpus(scene.state)), static_cast<double>(empty)));
    put(!has_head            ? 0.0
        : shadow == kEndless ? 1.0
                             : std::min(std::max(seconds(shadow - scene.now_us) / horizon_s, 0.0), 1.0));
    const Time clock = (scene.epoch_us + scene.now_us) % kDay;
    const double day = static_cast<double>(clock < 0 ? clock + kDay : clock) / static_cast<double>(kDay);
    put(std::sin(kTwoPi * day));
    put(std::cos(kTwoPi * day));
    put(spec_.chooses_host() || scene.base_allocation != nullptr ? 0.0 : 1.0);
    scene.occupancy.write_lookahead(scene.now_us, horizon_s, out, spec_.sizes.lookahead);
    if (!spec_.asks_for_drain()) return;
    const Time last = scene.prospects.last_end();
    const double left = last == kEndless ? 0.0 : seconds(std::max(last - scene.now_us, Time{0}));
    out[spec_.sizes.lookahead] = static_cast<float>(last == kEndless ? 1.0 : left / (left + kTenHours));
}

}  // namespace gpuyard
