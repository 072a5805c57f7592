/* What schmod_gpuyard.c uses of LSF's interface for external scheduler plugins, written from the published
 * description of it (LSF 10.1 names). It is here so that the plugin can be compiled and tested where LSF is not
 * installed; on a real LSF its own lssched.h takes its place. */
#ifndef GPUYARD_STUB_LSSCHED_H
#define GPUYARD_STUB_LSSCHED_H

typedef void INT_Reason;
typedef void INT_RsrcReq;
typedef void INT_Alloc;
typedef void INT_AllocLimitList;
typedef void INT_Job;
typedef void INT_Host;
typedef void INT_CandGroupList;

struct candHost {
    int hostIdx;
    INT_Host *hostPtr;
};

struct candHostGroup {
    struct candHostGroup *forw;
    struct candHostGroup *back;
    int maxOfMembers;
    int numOfMembers;
    struct candHost *candHost;
};

struct resources;

/* What extsched_host_resources returns belongs to LSF, and lasts until the next call. */
struct hostResources {
    char *hostName;
    char *cluster;
    int nres;
    struct resources *res;
};

typedef int (*RsrcReqHandler_NewFn)(INT_RsrcReq *resreq);
typedef void (*RsrcReqHandler_FreeFn)(void *handlerData);
typedef int (*RsrcReqHandler_MatchFn)(void *handlerData, INT_CandGroupList *candGroupList, INT_Reason *reasonPtr);
typedef int (*RsrcReqHandler_SortFn)(void *handlerData, INT_CandGroupList *candGroupList, INT_Reason *reasonPtr);
typedef int (*RsrcReqHandler_NotifyAllocFn)(void *info, INT_Job *job, INT_Alloc *alloc,
                                            INT_AllocLimitList *allocLimitList, int flag);
typedef int (*RsrcReqHandler_CheckAllocFn)(void *info, INT_Job *job, INT_Alloc *alloc,
                                           INT_AllocLimitList *allocLimitList);

typedef struct _RsrcReqHandlerType {
    RsrcReqHandler_NewFn newFn;
    RsrcReqHandler_FreeFn freeFn;
    RsrcReqHandler_MatchFn matchFn;
    RsrcReqHandler_SortFn sortFn;
    RsrcReqHandler_NotifyAllocFn notifyAllocFn;
    RsrcReqHandler_CheckAllocFn checkAllocFn;
} RsrcReqHandlerType;

extern int sched_version(void *);
extern int sched_init(void *);
extern int sched_pre_proc(void *);
extern int sched_match_limit(void *);
extern int sched_order_alloc(void *);
extern int sched_post_proc(void *);
extern int sched_finalize(void *);

extern int extsched_resreq_registerhandler(int handlerId, RsrcReqHandlerType *handler);
extern void extsched_resreq_setobject(INT_RsrcReq *resreq, int handlerId, char *key, void *handlerData);
extern char **extsched_resreq_getextresreq(INT_RsrcReq *resreq, int *msgCnt);
extern struct candHostGroup *extsched_cand_getnextgroup(INT_CandGroupList *candGroupList);
extern void extsched_cand_removehost(struct candHostGroup *group, int index);
extern int extsched_reason_set(INT_Reason *reasonPtr, struct candHost *candHost, int reasonId);
extern struct hostResources *extsched_host_resources(INT_Host *host);

#endif
