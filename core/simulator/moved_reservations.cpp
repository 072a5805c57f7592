// Reservations of `conservative` after an early end: made anew are only those that may move by what has changed since
// they were last looked at. docs/contract/simulator.md, section 10, step 2.
#include <algorithm>

#include "base/index.hpp"
#include "simulator/reservations.hpp"

namespace gpuyard {

// One pool, in which jobs take as long on all nodes, and a rule that goes by room and numbers of nodes alone.
bool Reservations::may_follow_chances(const Placer& placer) const {
    const ClusterSpec& spec = snapshot_.state.spec();
    const bool by_room = placer.rule() == Placement::consolidate || placer.rule() == Placement::best_fit ||
                         placer.rule() == Placement::first_fit || placer.rule() == Placement::worst_fit;
    return by_room && placer.needs_only_room() && profile_.searches_nodes_only() && spec.pools.size() == 1 &&
           spec.partitions.empty() && !spec.track_gpus && same_speed_;
}

void Reservations::take_on_one_node(const Demand& demand, std::int32_t node) {
    const PoolOption& option = demand.pools.front();
    allocation_.parts.assign(1, {node, demand.gpus, 0});
    allocation_.pool = option.pool;
    allocation_.fewest_nodes = option.fewest_nodes;
    allocation_.speed = snapshot_.state.spec().pools[as_index(option.pool)].speed;
}

void Reservations::touch(const Reservation& entry) {
    if (!follows_chances_) return;
    for (const Part& part : entry.parts) chances_.touched(part.node, entry.begin_us, entry.end_us);
}

void Reservations::follow_early_ends() {
    earliest_.forget();
    for (const EarlyEnd& end : snapshot_.early_ends) {
        const Demand& demand = snapshot_.demand(end.demand);
        if (demand.queue != queue_) continue;
        profile_.release(snapshot_.now_us, end.expected_end_us, demand, end.parts);
        for (const Part& part : end.parts) chances_.touched(part.node, snapshot_.now_us, end.expected_end_us);
    }
}

void Reservations::improve_kept(std::span<const QueuedJob* const> order, std::size_t kept, Placer& placer) {
    for (std::size_t i = 0; i < kept; ++i) {
        if (!follows_chances_ || plan_[i].begin_us == kEndless)
            improve(plan_[i], *order[i], placer);
        else if (may_move(plan_[i], checked_[i]))
            look_again(i, *order[i], placer);
    }
}

// False only if the reservation would be made anew as it is. It would if nothing has changed on its own nodes, and no
// other node now has a better chance, or may be part of one.
bool Reservations::may_move(const Reservation& entry, const Checked& checked) {
    if (checked.epoch != chances_.epoch()) return true;
    if (checked.chance.node >= 0)
        return chances_.last_touch(checked.chance.node) > checked.clock ||
               chances_.best(checked.table).before(checked.chance);
    return chances_.suspects(checked.table, checked.clock, entry.begin_us) ||
           std::any_of(entry.parts.begin(), entry.parts.end(),
                       [&](const Part& part) { return chances_.last_touch(part.node) > checked.clock; });
}

void Reservations::look_again(std::size_t at, const QueuedJob& job, Placer& placer) {
    Reservation& entry = plan_[at];
    Checked& checked = checked_[at];
    const Time length = longest(job);
    checked.table = chances_.table_of(demand_of(job).gpus, length);
    if (on_one_node(demand_of(job)))
        look_again_on_one_node(entry, checked, length);
    else
        look_again_for_gang(entry, job, length, placer);
    note_checked(checked);
}

void Reservations::look_again_on_one_node(Reservation& entry, Checked& checked, Time length_us) {
    const Demand& demand = snapshot_.demand(entry.demand);
    const std::int32_t node = entry.parts.front().node;
    const Profile::Chance elsewhere = chances_.best_without(checked.table, node);
    profile_.release(entry.begin_us, entry.end_us, demand, entry.parts);
    const Profile::Chance here = profile_.first_on_node(node, demand.gpus, length_us, snapshot_.now_us);
    checked.chance = elsewhere.before(here) ? elsewhere : here;
    const bool moves = checked.chance.node != node || checked.chance.begin_us != entry.begin_us;
    if (moves) {
        touch(entry);
        earliest_.forget();
        entry.begin_us = checked.chance.begin_us;
        entry.end_us = expected_end(entry.begin_us, length_us);
        entry.parts.front().node = checked.chance.node;
    }
    profile_.hold(entry.begin_us, entry.end_us, demand, entry.parts);
    if (moves) touch(entry);
}

void Reservations::look_again_for_gang(Reservation& entry, const QueuedJob& job, Time length_us, Placer& placer) {
    const Demand& demand = demand_of(job);
    profile_.release(entry.begin_us, entry.end_us, demand, entry.parts);
    const Time begin = profile_.find(length_us, demand, job.row, 0, entry.begin_us, placer, allocation_);
    const bool moves = begin <= entry.begin_us && (begin != entry.begin_us || allocation_.parts != entry.parts);
    if (moves) {
        touch(entry);
        earliest_.forget();
        entry.begin_us = begin;
        entry.end_us = expected_end(begin, length_us);
        entry.parts = allocation_.parts;
    }
    profile_.hold(entry.begin_us, entry.end_us, demand, entry.parts);
    if (moves) touch(entry);
}

}  // namespace gpuyard
